// Health: what preflight found of each rank, beside what it must be, what other ranks have, and
// the best that the same rank had so far.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"

namespace lockstep {

// The check of what a rank's threads had of processors while they multiplied.
inline constexpr const char* kProcessorShare = "share of its processors' time";

struct Finding {
  // Of flops, bytes (a second) and shares more is better, of seconds and counts less.
  enum class Unit : std::uint8_t { flops, bytes_per_second, share, seconds, count };
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string check = {};  // "product 4096 x 4096 x 1024 bf16"
  Unit unit = Unit::count;
  double value = kNone;
  double limit = kNone;     // the worst that it may be; kNone: none is known
  double tolerance = 0;     // how much worse than its peers' and its best it may be, relative;
                            // 0: it is not compared with them
  std::string bits = {};    // must be the same on all ranks; empty: nothing is compared
  std::string detail = {};  // what a person should know of the value: "eth0 rx_errors +3"
  // What it depends on beside the machine: "2 ranks on the host, 1 thread each". It is compared
  // with what was found of the same.
  std::string of = {};
  std::string whose = {};               // where it is not of the rank that says it: "hosts n1, n2"
  std::string key = {};                 // of `whose`, where that has numbers of ranks (Who::key)
  std::string failure = {};             // why it could not be measured; empty: it was
  bool is_wrong_configuration = false;  // that it could not
};
Json to_json(const Finding& finding);
Finding finding(const Json& json);  // throws DataError

std::string in_words(double value, Finding::Unit unit);  // "118 GFLOP/s", "96 %"
bool is_worse(double value, double than, Finding::Unit unit);

// A rank, as it is named, and by a key that stays the same when ranks have other numbers.
struct Who {
  std::string words;  // "host n2, rank 3"
  std::string key;    // "n2/1": its host, and its number there
};

// The best that was found whenever nothing was wrong: by check, Who::key (or Finding::key, or
// `whose`), and what it is of. Not the newest: what becomes slower by a little each time would
// never be named.
class Baseline {
 public:
  using ByConfiguration = std::map<std::string, double>;  // Finding::of

  void keep(const Finding& finding, const std::string& key);  // where it is better
  // Of all configurations; nullptr: none.
  const ByConfiguration* find(const std::string& check, const std::string& key) const;

  static Baseline parse(const Json& json);  // throws DataError
  Json to_json() const;

 private:
  std::map<std::string, std::map<std::string, ByConfiguration>> values_;
};

struct HealthVerdict {
  struct Row {  // of a check
    std::string check = {};
    Finding::Unit unit = Finding::Unit::count;
    int ranks = 0;  // that it was measured on
    double worst = Finding::kNone, median = Finding::kNone;
    double limit = Finding::kNone;
    double best = Finding::kNone;  // so far, of the rank with the worst
    bool is_new = false;           // it has none of this configuration, but one of another
    bool is_well = true;
  };
  struct Fault {
    std::string whose, what;
    bool is_wrong_configuration = false;
  };
  std::vector<Row> rows;  // as the checks were made
  std::vector<Fault> faults;

  // 0; 78 where the configuration is wrong; else 75: of a machine.
  int exit_code() const;
};

// by_rank: what each said, `who` they are. Of ranks alike the reference is the median, of an even
// number the better one: of two the slower is named.
HealthVerdict judge(const std::vector<std::vector<Finding>>& by_rank, const std::vector<Who>& who,
                    const Baseline& before);
// With what was found now, where that is compared; what is known of other hosts stays.
Baseline baseline_of(const std::vector<std::vector<Finding>>& by_rank, const std::vector<Who>& who,
                     Baseline before = {});

}  // namespace lockstep

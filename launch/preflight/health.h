// Health judges the findings of preflight: it compares each rank with limits, with other ranks, and
// with the best earlier value of the same rank.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"

namespace lockstep {

// Name of the check for the CPU time that the threads of a rank got while they multiplied.
inline constexpr const char* kProcessorShare = "share of its CPU time";

struct Finding {
  // More is better for flops, bytes per second and shares; less for seconds and counts.
  enum class Unit : std::uint8_t { flops, bytes_per_second, share, seconds, count };
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string check = {};  // key in preflight.json: "product 4096 x 4096 x 1024 bf16"
  Unit unit = Unit::count;
  double value = kNone;
  double limit = kNone;     // worst allowed value; kNone: no limit
  double tolerance = 0;     // allowed relative difference from peers and from the best earlier
                            // value; 0: no comparison
  std::string bits = {};    // hash that must be equal on all ranks; empty: no comparison
  std::string detail = {};  // details for readers: "eth0 rx_errors +3"
  // The configuration of the measurement: "2 ranks on the host, 1 thread each". Only values of the
  // same configuration are compared.
  std::string of = {};
  std::string whose = {};    // subject, if it is not the reporting rank: "hosts n1, n2"
  std::string key = {};      // stable key of `whose`, if that has rank numbers (Who::key)
  std::string failure = {};  // reason why the measurement failed; empty: it succeeded
  bool is_wrong_configuration = false;  // the configuration caused the failure
};
const char* name(Finding::Unit unit);  // "bytes_per_second"
Json to_json(const Finding& finding);
Finding finding(const Json& json);  // throws DataError

std::string in_words(double value, Finding::Unit unit);  // "118 GFLOP/s", "96 %"
bool is_worse(double value, double than, Finding::Unit unit);

// The name of a rank, and a key that does not change when ranks are renumbered.
struct Who {
  std::string words;  // "host n2, rank 3"
  std::string key;    // "n2/1": host, and number of the rank on the host
};

// Baseline keeps the best values of all preflights without faults, by check, Who::key (or
// Finding::key, or `whose`) and Finding::of. It does not keep the newest values, because a slow
// decline would never be reported.
class Baseline {
 public:
  using ByConfiguration = std::map<std::string, double>;  // Finding::of

  void keep(const Finding& finding, const std::string& key);  // if it is better
  // The values of all configurations; nullptr: none.
  const ByConfiguration* find(const std::string& check, const std::string& key) const;

  static Baseline parse(const Json& json);  // throws DataError
  Json to_json() const;

 private:
  std::map<std::string, std::map<std::string, ByConfiguration>> values_;
};

struct HealthVerdict {
  struct Row {               // result of a check
    std::string check = {};  // for readers: "matmul 4096 x 4096 x 1024 bf16"
    Finding::Unit unit = Finding::Unit::count;
    int ranks = 0;  // number of ranks with a value
    double worst = Finding::kNone, median = Finding::kNone;
    double limit = Finding::kNone;
    double best = Finding::kNone;  // best earlier value of the rank with the worst value
    bool is_new = false;           // earlier values exist only for other configurations
    bool is_well = true;
  };
  struct Fault {
    std::string whose, what;
    bool is_wrong_configuration = false;
  };
  struct Result {  // of a check on one rank
    std::size_t rank = 0;
    bool is_of_all = false;  // of all ranks together, as rank 0 reported it
    std::string check = {};  // as in Row
    Finding::Unit unit = Finding::Unit::count;
    double measured = Finding::kNone;
    double expected = Finding::kNone;  // the worst value that is no fault
    std::string fault = {};            // empty: none
    bool is_wrong_configuration = false;
  };
  std::vector<Row> rows;  // in the order of the checks
  std::vector<Fault> faults;
  std::vector<Result> results;

  // 0: no faults; 78: wrong configuration; 75: faulty or slow host.
  int exit_code() const;
};

// Judges the findings of all ranks (`by_rank`), named by `who`. The reference for peers is the
// median; with an even number of ranks it is the better of the two middle values, so that of two
// ranks the slower one is reported.
HealthVerdict judge(const std::vector<std::vector<Finding>>& by_rank, const std::vector<Who>& who,
                    const Baseline& before);
// Adds the compared values of this preflight to a baseline. Values of other hosts stay.
Baseline baseline_of(const std::vector<std::vector<Finding>>& by_rank, const std::vector<Who>& who,
                     Baseline before = {});

}  // namespace lockstep

// Causes: why an attempt of a supervised run ended, and the consequence. The code is pure: it
// reads only the evidence. docs/resilience.md has the table of causes for operators.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dist/job/socket.h"
#include "dist/job/supervise/messages.h"

namespace lockstep {

// Exit codes of ranks (docs/exit_codes.md).
inline constexpr int kUsage = 64, kDamaged = 65, kStorage = 74, kTemporary = 75, kAccess = 77,
                     kConfiguration = 78, kInterrupted = 130;

// Steps of Evidence. kNone: the run has none yet. kUnknown: storage did not answer.
inline constexpr std::int64_t kNone = -1, kUnknown = -2;

// Place p of an attempt has ranks p * slots to p * slots + slots - 1, on the host places[p].
struct Attempt {
  std::int64_t number = 0;  // 0: none
  std::vector<std::string> places{};

  friend bool operator==(const Attempt&, const Attempt&) = default;
};

// The facts that are known after all ranks of an attempt have ended.
struct Evidence {
  Attempt attempt;
  int slots = 1;
  std::vector<RankEnd> ends{};                     // in the order in which they were reported
  std::map<std::string, std::vector<int>> xids{};  // by host
  std::vector<std::string> gone{};   // hosts of the attempt whose agent does not answer
  std::vector<std::string> stuck{};  // hosts whose ranks could not be killed
  std::vector<std::string> late{};   // hosts whose ranks did not end soon after the others
  bool can_move = false;        // another host can compute the ranks of a host in the next attempt
  std::int64_t noted_step = 0;  // that ranks of the attempt reported when they reached it
  std::int64_t saved_step = kUnknown;  // newest saved step
  std::int64_t last_step = kUnknown;   // last step that was recorded
  std::string asked{};                 // who asked the run to stop; "": no request
  // Derived from `ends` by add().
  std::set<int> ended{};           // ranks
  std::optional<int> root_code{};  // exit code of rank 0
  bool any_failed = false;

  // An agent that joins again repeats its reports; the first one of a rank counts.
  void add(const RankEnd& end);
};

enum class CauseKind : std::uint8_t {
  done,           // all ranks ended with 0
  asked,          // a user or a scheduler stopped the run
  host_lost,      // a host does not answer
  host_stuck,     // processes of a host cannot be killed
  gpu,            // the kernel reported a fatal error of a GPU
  host_memory,    // the kernel killed a rank because memory was short
  corruption,     // weights of a rank are wrong
  hang,           // a rank made no progress
  process,        // a rank was killed by a signal, or died without an error
  storage,        // storage is not accessible
  network,        // ranks lost their connections, and no rank was lost
  configuration,  // a retry cannot help: configuration, permissions, damaged files
  program,        // any other error of a rank
};
const char* name(CauseKind kind);
CauseKind kind_of(const std::string& name);  // throws DataError if there is none

struct Cause {
  CauseKind kind = CauseKind::program;
  std::vector<std::string> hosts{};  // all hosts with this error; empty: unknown
  int exit_code = 75;                // of the run, if it is not restarted
  std::string text{};                // one sentence for people
  std::string signature{};           // the error without its numbers, to recognize it again
  std::int64_t step = 0;             // that the rank reported; 0: none
  std::string samples{};             // of this step, as the rank reported
};
Cause classify(const Evidence& evidence);

// Severity of an Xid error of a GPU. `exclude`: its host is not used until the GPU is repaired or
// reset. `restart`: the processes on the GPU end, and may start again.
enum class XidSeverity : std::uint8_t { none, restart, exclude };
XidSeverity severity(int xid);
// The number of an Xid line of the kernel's log: "NVRM: Xid (PCI:0000:3b:00): 79, ..."; 0: none.
int xid_of(const std::string& line);

// RestartPolicy decides whether, when and without which hosts a run is started again.
struct PolicyOptions {
  std::vector<Milliseconds> pauses{Milliseconds(0), Milliseconds(5'000), Milliseconds(15'000),
                                   Milliseconds(60'000), Milliseconds(300'000)};
  int fruitless = 5;               // consecutive starts without a save after which the run ends
  int most_an_hour = 20;           // restarts
  Milliseconds memory{3'600'000};  // a second fault of a host within this time excludes it
  Milliseconds hang_memory{24 * 3'600'000};  // the same for hangs
  bool skips = false;  // leave out the data of a step that ends with the same error on two hosts
};

struct Decision {
  bool restarts = false;
  Milliseconds pause{0};               // before the restart
  std::vector<std::string> exclude{};  // hosts
  std::string move{};                  // host whose ranks move to another host; "": none
  std::int64_t noted_step = 0;         // ranks report the samples of this step; 0: of none
  std::int64_t skip_step = 0;          // its data is left out from now on; 0: none
  int exit_code = 0;                   // if it does not restart
  std::string why{};                   // one sentence for people
};

class RestartPolicy {
 public:
  explicit RestartPolicy(PolicyOptions options = {}) : options_(std::move(options)) {}
  Decision decide(const Cause& cause, const Evidence& evidence, Deadline now);

  // Whether the host is excluded now.
  bool is_excluded(const std::string& host, Deadline now) const;
  // Excludes a host for an hour; the second time, or if it is broken, until the run ends.
  void exclude(const std::string& host, bool broken, Deadline now);
  // Makes one of the hosts that are excluded but not broken available again: the one with the
  // fewest faults. "": there is none.
  std::string readmit(const std::vector<std::string>& hosts, Deadline now);

 private:
  struct History {
    std::vector<std::pair<Deadline, CauseKind>> faults{};
    Deadline until = Deadline::min();  // excluded; max(): until the run ends
    int exclusions = 0;
    bool broken = false;
  };
  int faults(const std::string& host, CauseKind kind, Milliseconds within, Deadline now);
  // Whether an error occurred again at the same step: in the same place, on another host, or on the
  // same host in another place.
  enum class Repeat : std::uint8_t { no, same_place, other_host, same_host };
  Repeat repeat(const Cause& cause, const Evidence& evidence);
  Decision blame_step(const Cause& cause, Decision go);

  PolicyOptions options_;
  std::map<std::string, History> hosts_;
  std::int64_t best_saved_ = kNone;
  int without_save_ = 0;
  std::vector<Deadline> restarts_;
  struct Failure {
    std::string signature{};  // "": an error that does not follow the data
    std::int64_t step = 0;    // the one after the last recorded step, unless ranks reported it
    bool is_reported = false;
    std::vector<std::string> hosts{};
    std::ptrdiff_t place = 0;  // of the first host
    int count = 0;             // consecutive
  };
  Failure last_;
  std::set<std::int64_t> skipped_;
};

}  // namespace lockstep

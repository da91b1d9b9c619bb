// RunTimes: what a run's wall time went to, across its starts, from RUN/ledger.jsonl
// (docs/observability.md).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep {

struct RunTimes {
  enum class Kind : std::uint8_t {
    productive,  // steps that no later start took back, without what they waited for data
    replayed,    // the same of those that one did
    data,
    checkpoint,
    evaluation,
    restart,  // from a start to its first step's begin, and what is in no other kind
    idle      // from the last line of a start to the next one
  };
  static constexpr int kKinds = 7;

  struct Start {
    double begin_seconds = 0, first_step_seconds = 0, end_seconds = 0;  // since 1970
    double replayed_from_seconds = 0;  // its steps from there on were taken back; its end: none
    std::int64_t from_step = 0, last_step = 0;
    std::int64_t ranks = 0;
    std::vector<std::string> hosts;
    std::optional<std::int64_t> exit_code;  // nothing where it was killed, or goes on
    std::string why;
  };

  std::vector<Start> starts;
  std::array<double, kKinds> seconds{};  // they sum to wall_seconds
  double wall_seconds = 0;               // from the first start to the last line
  std::int64_t left_out = 0;             // lines that are damaged
  std::string first_left_out;            // "line 17: ..."
};

const char* name(RunTimes::Kind kind);

// Nothing where there is no such file, or no start in it. A last line without newline is left out.
// Throws DataError where it cannot be read, or is larger than 256 MiB.
std::optional<RunTimes> read_run_times(const std::filesystem::path& ledger);

// How a run's last start ended: nothing where it goes on, was killed, or where that is not said.
struct RunEnd {
  double time_seconds = 0;
  std::int64_t exit_code = 0;
  std::string why;
};
std::optional<RunEnd> last_end(const std::filesystem::path& ledger);

}  // namespace lockstep

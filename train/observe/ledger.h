// Ledger: RUN/ledger.jsonl, the use of a run's wall time, over all its starts (docs/formats.md).
// Goodput is the share of the wall time spent on steps that no later start computed again.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/observe/append_only_file.h"
#include "train/observe/restart_phases.h"
#include "train/observe/step_report.h"

namespace lockstep {

// Largest plausible gap between two lines. A larger one means that a clock was wrong.
inline constexpr double kMostGapSeconds = 366 * 86400.0;

// One line of the file.
struct LedgerLine {
  enum class Kind : unsigned char { start, steps, end };

  Kind kind = Kind::start;
  double time_seconds = 0;           // end of the event, in seconds since 1970
  std::int64_t step = 0;             // start: step that it resumes from; end: last step
  std::int64_t ranks = 0;            // start: number of ranks
  std::vector<std::string> hosts{};  // start: hosts
  std::string version{};             // start: program version; empty: an older program
  RestartSeconds restart{};          // start: by `lockstep supervise`
  StartSeconds starting{};           // start: 0 in lines of older programs
  std::int64_t first = 0, last = 0;  // steps: range; last = first - 1: no step, only a save
  double step_seconds = 0;           // time with data wait and the host's work between steps
  double data_seconds = 0, checkpoint_seconds = 0, evaluation_seconds = 0;
  int exit_code = 0;  // end
  std::string why{};
};

std::string to_json_line(const LedgerLine& line);

// Reads the complete lines with known events. The first one is a start. Returns none if the file
// does not exist. Throws DataError naming a line that is damaged or has impossible values.
std::vector<LedgerLine> read_ledger(const std::filesystem::path& path);

// Reads the last complete line. It is an end, unless the last start is running or was killed.
// Returns nullopt if there is no line or its event is unknown. Throws DataError if it is damaged.
std::optional<LedgerLine> read_last_line(const std::filesystem::path& path);

// Use of a run's wall time.
struct Goodput {
  double productive_seconds = 0;  // steps that no later start computed again, without data wait
  double replayed_seconds = 0;    // steps after the one that a later start resumed from
  double restart_seconds = 0;     // from each start to its first step, also of the first start
  double checkpoint_seconds = 0;  // waiting for checkpoints
  double data_seconds = 0;        // waiting for data
  double evaluation_seconds = 0;  // evaluations and samples
  double idle_seconds = 0;        // between starts, and time that no line covers
  std::int64_t restarts = 0;      // number of starts without the first
  RestartPhases phases{};         // of all restarts; idle_seconds and restart_seconds contain them

  std::array<std::pair<const char*, double>, 7> parts() const;  // "productive", its seconds; ...
  // Sum of the parts: the time from the first start to the last line. If the host's clock was set
  // back between two starts, that gap counts as 0.
  double wall_seconds() const;
  double ratio() const;  // productive / wall; 0 if the wall time is 0
};

Goodput goodput_of(std::span<const LedgerLine> lines);

// Times of a start, in seconds since 1970. They are corrected for clocks that were set back, so the
// wall_seconds of a Goodput pass from the first begin to the last end.
struct StartTimes {
  double begin_seconds = 0, first_step_seconds = 0;
  double replayed_from_seconds = 0;  // begin of its steps that later starts replayed; its end: none
  double end_seconds = 0;
  std::int64_t from_step = 0, last_step = 0;
  std::int64_t ranks = 0;
  std::vector<std::string> hosts{};
  // All 0 for the first start. If a start was killed before its first line of steps, the time since
  // it began is in `stopped` or `detect` of the next start.
  RestartPhases phases{};
  double replays_seconds = 0;      // of earlier starts' steps that it computes again
  std::optional<int> exit_code{};  // nullopt: it was killed or is running
  std::string why{};
};

std::vector<StartTimes> starts_of(std::span<const LedgerLine> lines);

// "goodput 93.1% of 5h12m: productive 4h51m, replayed 3m, restarts 6m (4), ..."
std::string in_words(const Goodput& goodput);

class Ledger {
 public:
  struct Start {
    std::chrono::steady_clock::time_point began;  // begin of the process
    std::int64_t step = 0;                        // step that it resumes from
    std::int64_t ranks = 1;
    std::vector<std::string> hosts{};  // hosts of the ranks, each once
    std::string version{};             // "0.1.0, commit 827b9f19baeb"
    RestartSeconds restart{};
    StartSeconds starting{};
  };
  // Continues the file, or creates it. Make it when the first step begins. Within a start, time is
  // measured by a monotonic clock.
  Ledger(const std::filesystem::path& path, const Start& start);

  // Accounts for the time since the last call. Writes a line for the steps of ten seconds or more,
  // and returns whether it wrote one. If the write fails, a later line includes its steps.
  bool append(const StepReport& report);
  // checkpoint_seconds: time of saving after the last step.
  void end(int exit_code, const std::string& why, double checkpoint_seconds);
  void sync() { file_.sync(); }
  bool is_named() const { return file_.is_named(); }  // see AppendOnlyFile

  const Goodput& goodput() const { return goodput_; }      // of all starts, until the last call
  const RestartPhases& phases() const { return phases_; }  // of this start, until its first step

 private:
  using Clock = std::chrono::steady_clock;

  double time_of(Clock::time_point at) const;
  void write_pending();

  AppendOnlyFile file_;
  Clock::time_point began_, accounted_, written_;
  double start_seconds_ = 0;  // since 1970
  std::int64_t last_step_ = 0;
  bool stepping_ = false;              // the first step of this start is done
  std::optional<LedgerLine> pending_;  // steps that have no line yet
  Goodput goodput_;
  RestartPhases phases_;
};

}  // namespace lockstep

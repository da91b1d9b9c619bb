// Ledger: RUN/ledger.jsonl, what the wall time of a run went to, across its starts
// (docs/formats.md). Goodput is the share of it in which steps were computed that count.
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

#include "train/observe/append_file.h"
#include "train/observe/step_report.h"

namespace lockstep {

// Between two lines; where there is more, a clock was wrong.
inline constexpr double kMostGapSeconds = 366 * 86400.0;

// One line of the file.
struct LedgerLine {
  enum class Kind : unsigned char { start, steps, end };

  Kind kind = Kind::start;
  double time_seconds = 0;  // since 1970, when what the line tells of was over
  std::int64_t step = 0;    // start: goes on behind it. end: the last one
  std::int64_t ranks = 0;   // start
  std::vector<std::string> hosts{};
  std::string version{};             // start: of the program; empty: an older one
  std::int64_t first = 0, last = 0;  // steps; last = first - 1: none, but what was behind a step
  double step_seconds = 0;           // data wait included, and what the host does between steps
  double data_seconds = 0, checkpoint_seconds = 0, evaluation_seconds = 0;
  int exit_code = 0;  // end
  std::string why{};
};

std::string to_json_line(const LedgerLine& line);

// The whole lines of a ledger, of events that are known, the first a start; none where there is no
// such file. Throws DataError naming the line that is damaged, or claims what cannot be.
std::vector<LedgerLine> read_ledger(const std::filesystem::path& path);

// The last whole line of a ledger: an end, unless the last start goes on or was killed. Nothing
// where there is none, or its event is not known. Reads that line alone, and throws DataError where
// it is damaged.
std::optional<LedgerLine> read_last_line(const std::filesystem::path& path);

// What the wall time of a run went to.
struct Goodput {
  double productive_seconds = 0;  // steps that no later start took back, without their data wait
  double replayed_seconds = 0;    // of steps behind the one that a later start went on from
  double restart_seconds = 0;     // from each start to its first step, the first start's too
  double checkpoint_seconds = 0;  // for which training waited for saves
  double data_seconds = 0;        // and for data
  double evaluation_seconds = 0;  // and samples
  double idle_seconds = 0;        // between starts, and what no line accounts for
  std::int64_t restarts = 0;      // starts but the first

  std::array<std::pair<const char*, double>, 7> parts() const;  // "productive", its seconds; ...
  // The sum of the parts: from the first start to the last line, unless the machine's clock was set
  // back between two starts, which counts as no time.
  double wall_seconds() const;
  double ratio() const;  // productive / wall; 0 of no time
};

Goodput goodput_of(std::span<const LedgerLine> lines);

// When a start did what, in seconds since 1970, as if no clock had been set back since the first
// start: from that one's begin to the last one's end are the wall_seconds of a Goodput.
struct StartTimes {
  double begin_seconds = 0, first_step_seconds = 0;
  double replayed_from_seconds = 0;  // later starts computed its steps from there on; its end: none
  double end_seconds = 0;
  std::int64_t from_step = 0, last_step = 0;
  std::int64_t ranks = 0;
  std::vector<std::string> hosts{};
  std::optional<int> exit_code{};  // nothing where it was killed, or goes on
  std::string why{};
};

std::vector<StartTimes> starts_of(std::span<const LedgerLine> lines);

// "goodput 93.1% of 5h12m: productive 4h51m, replayed 3m, restarts 6m (4), ..."
std::string in_words(const Goodput& goodput);

class Ledger {
 public:
  struct Start {
    std::chrono::steady_clock::time_point began;  // of the process's work
    std::int64_t step = 0;                        // goes on behind it
    std::int64_t ranks = 1;
    std::vector<std::string> hosts{};  // of the ranks, each once
    std::string version{};             // "0.1.0, commit 827b9f19baeb"
  };
  // Goes on with the file, or creates it; to be called when the first step begins. Within a start
  // time is measured by a clock that nobody sets.
  Ledger(const std::filesystem::path& path, const Start& start);

  // Accounts for the time since the last call. A line tells of the steps of ten seconds or more:
  // whether one was written. Where it cannot be, a later one tells of its steps.
  bool append(const StepReport& report);
  // checkpoint_seconds: of saving behind the last step.
  void end(int exit_code, const std::string& why, double checkpoint_seconds);
  void sync() { file_.sync(); }
  bool is_named() const { return file_.is_named(); }  // see AppendFile

  const Goodput& goodput() const { return goodput_; }  // of all starts, up to the last call

 private:
  using Clock = std::chrono::steady_clock;

  double time_of(Clock::time_point at) const;
  void write_pending();

  AppendFile file_;
  Clock::time_point began_, accounted_, written_;
  double start_seconds_ = 0;  // since 1970
  std::int64_t last_step_ = 0;
  bool stepping_ = false;              // the first step of this start is behind it
  std::optional<LedgerLine> pending_;  // steps without a line
  Goodput goodput_;
};

}  // namespace lockstep

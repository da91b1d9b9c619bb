// MetricsReader reads metrics.jsonl (train/observe/metrics_log.h), also while a run still writes
// it. It accepts or leaves out a line as a whole. It counts the lines left out, and keeps the
// reason of the first. A line that jumps forward, or a first line after step 1, is held back until
// the next line. If that continues from before the jump, the jump was damage.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/function_ref.h"
#include "train/observe/step_metrics.h"

namespace lockstep {

struct StepMetrics {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0;
  std::array<double, kMetrics> values;  // NaN: absent, or null

  StepMetrics() { values.fill(kUnknown); }
  double operator[](Metric metric) const { return values[static_cast<std::size_t>(metric)]; }
  double& operator[](Metric metric) { return values[static_cast<std::size_t>(metric)]; }
};

// Parses a line without its newline: one flat JSON object with a "step" of at least 1. Members that
// are not in Metric may have any flat value. Throws DataError "at byte N: ..." on anything else,
// such as a metric that is not a number or appears twice.
StepMetrics parse_metrics_line(std::string_view line);

class MetricsReader {
 public:
  static constexpr std::int64_t kMostLineBytes = 1 << 20;
  // Largest gap between steps, from lines that a log lacks. A larger gap is damage.
  static constexpr std::int64_t kMostHole = 1'000'000;

  static constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

  // `most_bytes`: limit of one poll(), at least 2 kMostLineBytes.
  explicit MetricsReader(std::filesystem::path path, std::int64_t most_bytes = kAll)
      : path_(std::move(path)), most_bytes_(most_bytes) {}

  // Calls act for each whole line after those of the last call, up to most_bytes. If the file has
  // changed (a resume from an earlier step cut it), calls begin_anew first, and act for all lines.
  // Returns false if there is no file. Throws DataError if it cannot be read.
  bool poll(FunctionRef<void()> begin_anew, FunctionRef<void(const StepMetrics&)> act);

  std::int64_t lines() const { return lines_; }                          // whole lines
  std::int64_t left_out() const { return left_out_; }                    // lines left out
  const std::string& first_left_out() const { return first_left_out_; }  // "line 17: ..."
  const std::optional<StepMetrics>& held_back() const { return held_back_; }
  std::string why_held_back() const;                 // "step 600 is far after step 3, and ..."
  double share_read() const { return share_read_; }  // share of the file; 1: all of it
  std::int64_t unfinished_bytes() const { return unfinished_bytes_; }  // after the last newline

 private:
  bool continues(std::istream& file) const;
  void forget();
  void take(std::string_view bytes, FunctionRef<void(const StepMetrics&)> act);
  void take_line(std::string_view line, FunctionRef<void(const StepMetrics&)> act);
  void leave_out(std::int64_t line, const std::string& why);
  bool is_jump(std::int64_t step, std::int64_t line) const;
  void accept(const StepMetrics& metrics, std::int64_t line,
              FunctionRef<void(const StepMetrics&)> act);

  std::filesystem::path path_;
  std::int64_t most_bytes_;
  double share_read_ = 1;
  std::int64_t offset_ = 0;    // offset of the first byte not taken yet
  std::string before_;         // the last bytes before it
  bool in_long_line_ = false;  // its beginning was dropped
  std::int64_t unfinished_bytes_ = 0;
  std::int64_t step_ = 0;        // last accepted step; 0: none yet
  std::int64_t line_ = 0;        // its line
  bool is_behind_jump_ = false;  // it was a jump itself
  std::int64_t stride_ = 1;      // steps from a line to the next
  std::optional<StepMetrics> held_back_;
  std::int64_t held_back_line_ = 0;
  std::int64_t lines_ = 0, left_out_ = 0;
  std::string first_left_out_;
};

}  // namespace lockstep

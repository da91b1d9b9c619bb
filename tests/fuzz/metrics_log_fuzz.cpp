// Any metrics.jsonl is rejected, or has steps after a given one. A resume keeps the begin of the
// file, without these steps. The first byte of the input is the step, the rest is the file.
#include "core/file.h"
#include "tests/fuzz/fuzz.h"
#include "train/observe/metrics_log.h"

namespace lockstep::fuzz::metrics_log_fuzz {
StepReport report(std::int64_t step) {
  StepReport made;
  made.step = step;
  made.loss = 1 / (1.0 + static_cast<double>(step));
  made.weight_hash = 77;
  return made;
}

std::string line(std::int64_t step) {
  return to_json_line(report(step), 1e9);
}

void check_cut(const std::filesystem::path& path, std::int64_t step) {
  const auto before = read_text(path, 1 << 20);
  { const MetricsLog cut(path, step); }
  const auto kept = read_text(path, 1 << 20);
  LOCKSTEP_CHECK(before.starts_with(kept) && (kept.empty() || kept.back() == '\n'),
                 "kept what was not there");
  LOCKSTEP_CHECK(recorded_steps(path, step).empty(), "a step after ", step, " is kept");
}

void check(std::string_view input) {
  static const NamedFile file;
  if (input.empty()) return;
  const std::int64_t step = number_at<std::uint8_t>(input, 0);
  file.set(input.substr(1));
  may_refuse([&] {
    for (const auto& one : recorded_steps(file.path(), step))
      LOCKSTEP_CHECK(one.step > step, "step ", one.step);
  });
  must_accept([&] { check_cut(file.path(), step); });  // leaves no line of later steps
}

Seeds seeds() {
  return {str('\2', line(1), line(2), line(3)), str('\1', line(1), line(2).substr(0, 40)),
          str('\0', '\n', line(9))};
}

const Target target("metrics_log", seeds, check);

}  // namespace lockstep::fuzz::metrics_log_fuzz

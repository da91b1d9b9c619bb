// Any metrics.jsonl is refused, or has steps behind the one asked for; and what a resume keeps of
// it has none, and is the begin of it. The first byte of the input is the step, the rest the file.
#include "core/file.h"
#include "tests/fuzz/fuzz.h"
#include "train/metrics_log.h"

namespace lockstep::fuzz {
namespace {

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

void check(const std::filesystem::path& path, std::int64_t step) {
  const auto before = read_text(path, 1 << 20);
  { const MetricsLog cut(path, step); }
  const auto kept = read_text(path, 1 << 20);
  LOCKSTEP_CHECK(before.starts_with(kept) && (kept.empty() || kept.back() == '\n'),
                 "kept what was not there");
  try {
    LOCKSTEP_CHECK(recorded_steps(path, step).empty(), "a step behind ", step, " is kept");
  } catch (const DataError& error) {
    LOCKSTEP_FAIL(error.what());  // no line of those steps is left to be read
  }
}

}  // namespace

std::vector<std::string> seeds() {
  return {str('\2', line(1), line(2), line(3)), str('\1', line(1), line(2).substr(0, 40)),
          str('\0', '\n', line(9))};
}

}  // namespace lockstep::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;  // NOLINT(google-build-using-namespace)
  static const fuzz::MemoryFile file;
  if (size == 0) return 0;
  const std::int64_t step = data[0];
  file.set(data + 1, size - 1);
  try {
    for (const auto& one : recorded_steps(file.path(), step))
      LOCKSTEP_CHECK(one.step > step, "step ", one.step);
  } catch (const DataError&) {
  }
  fuzz::check(file.path(), step);
  return 0;
}

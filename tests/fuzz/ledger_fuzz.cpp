// Any ledger is rejected, or its parts are not negative and sum to the time from the first start to
// the end of the last. Its starts follow one another. Its last line reads the same alone and with
// all lines.
#include <cmath>

#include "tests/fuzz/fuzz.h"
#include "train/observe/ledger.h"

namespace lockstep::fuzz::ledger_fuzz {
// The sums have terms up to `whole`.
bool is_close(double a, double b, double whole) {
  return std::abs(a - b) <= 1e-9 * whole + 1e-6;
}

void check_times(const std::vector<LedgerLine>& lines) {
  const auto goodput = goodput_of(lines);
  const auto starts = starts_of(lines);
  if (lines.empty()) return;
  const double whole = starts.back().end_seconds;
  for (const auto& [name, seconds] : goodput.parts())
    LOCKSTEP_CHECK(seconds >= 0 || is_close(seconds, 0, whole), name, " ", seconds);
  LOCKSTEP_CHECK(is_close(goodput.wall_seconds(), whole - starts.front().begin_seconds, whole),
                 "the parts are not the time");
  LOCKSTEP_CHECK(std::ssize(starts) == goodput.restarts + 1, "starts are missing");
  const double without_steps = goodput.idle_seconds + goodput.restart_seconds;
  const double phases = goodput.phases.total();
  LOCKSTEP_CHECK(phases <= without_steps || is_close(phases, without_steps, whole),
                 "phases of restarts are counted twice");
  double last = starts.front().begin_seconds;
  for (const auto& start : starts)
    for (const double next : {start.begin_seconds, start.first_step_seconds,
                              start.replayed_from_seconds, start.end_seconds}) {
      LOCKSTEP_CHECK(next >= last || is_close(next, last, whole), next, " behind ", last);
      last = next;
    }
}

// read_last_line() may return nothing; else it returns the last line of the ledger.
void check_last(const std::vector<LedgerLine>& lines, const std::filesystem::path& path) {
  const auto last = read_last_line(path);
  if (!last) return;
  LOCKSTEP_CHECK(!lines.empty() && to_json_line(*last) == to_json_line(lines.back()),
                 "another last line");
}

void check(const std::filesystem::path& path) {
  const auto lines = read_ledger(path);
  check_times(lines);
  check_last(lines, path);
}

Seeds seeds() {
  using Kind = LedgerLine::Kind;
  const auto start = [](double time, std::int64_t step) {
    return to_json_line({.kind = Kind::start,
                         .time_seconds = time,
                         .step = step,
                         .ranks = 2,
                         .hosts = {"a"},
                         .restart = {.judge = 2, .prepare = 3},
                         .starting = {.meet = 1, .load = 2}});
  };
  const auto steps = [](double time, std::int64_t first, std::int64_t last) {
    return to_json_line({.kind = Kind::steps,
                         .time_seconds = time,
                         .first = first,
                         .last = last,
                         .step_seconds = 5,
                         .data_seconds = 1,
                         .checkpoint_seconds = 0.5});
  };
  const auto end = to_json_line({.kind = Kind::end, .time_seconds = 40, .step = 9, .why = "done"});
  return {str(start(1, 0), steps(9, 1, 4), steps(19, 5, 9), steps(20, 10, 9), start(30, 3),
              steps(39, 4, 9), end),
          start(1, 0) + end, start(1, 0) + steps(9, 1, 4) + start(30, 3) + end + end,
          steps(8, 1, 2) + start(1, 0)};
}

const Target target("ledger", seeds, check);

}  // namespace lockstep::fuzz::ledger_fuzz

#include "kernels/autotune.h"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

constexpr double kCannot = std::numeric_limits<double>::infinity();
constexpr double kRoundSeconds = 2e-4;  // many times the resolution of events
constexpr double kMostCalls = 16;       // in a round
constexpr int kRounds = 4;
constexpr double kHopeful = 1.25;  // times the best: slower ways are not timed again
constexpr double kClearly = 0.99;  // times the first

}  // namespace

Fastest find_fastest(Stream& stream, int ways, FunctionRef<bool(int way)> run) {
  Fastest found{.way = -1, .seconds = std::vector<double>(static_cast<std::size_t>(ways), kCannot)};
  const auto seconds = [&](int way) -> double& {
    return found.seconds[static_cast<std::size_t>(way)];
  };
  std::vector<int> left;
  for (int way = 0; way < ways; ++way)
    if (run(way)) left.push_back(way);  // the first call loads the code, and is not timed
  if (left.empty()) return found;
  const int first = left.front();
  int fastest = first, calls = 3;  // with one call, its launch would count too
  for (int round = 0; round < kRounds; ++round) {
    for (const int way : left) {
      const Event begin = stream.record_timed();
      for (int i = 0; i < calls; ++i)
        LOCKSTEP_CHECK(run(way), "way ", way, " of ", ways, " ran once, and not again");
      const Event end = stream.record_timed();
      end.synchronize();
      seconds(way) = std::min(seconds(way), end.seconds_since(begin) / calls);
      if (seconds(way) < seconds(fastest)) fastest = way;
    }
    std::erase_if(left, [&](int way) { return seconds(way) > kHopeful * seconds(fastest); });
    calls = static_cast<int>(std::clamp(kRoundSeconds / seconds(fastest), 1.0, kMostCalls));
  }
  found.way = seconds(fastest) < kClearly * seconds(first) ? fastest : first;
  return found;
}

}  // namespace lockstep

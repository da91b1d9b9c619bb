#include "train/stragglers.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep {

std::optional<SlowestRank> slowest_of(std::span<const double> seconds_of_ranks) {
  std::vector<double> known;
  SlowestRank slowest;
  for (std::size_t rank = 0; rank < seconds_of_ranks.size(); ++rank) {
    const double seconds = seconds_of_ranks[rank];
    if (!std::isfinite(seconds)) continue;
    known.push_back(seconds);
    if (seconds > slowest.seconds) slowest = {.rank = static_cast<int>(rank), .seconds = seconds};
  }
  if (known.size() < 2) return std::nullopt;
  const auto middle = known.begin() + (std::ssize(known) - 1) / 2;
  std::nth_element(known.begin(), middle, known.end());
  slowest.median = *middle;
  return slowest.median > 0 ? std::optional(slowest) : std::nullopt;
}

bool Stragglers::observe(const SlowestRank& slowest) {
  const bool stands_out = slowest.ratio() > kMostRatio;
  reports_ = !stands_out ? 0 : slowest.rank == rank_ ? reports_ + 1 : 1;
  rank_ = slowest.rank;
  constexpr std::int64_t kAgain = 10;
  return reports_ >= kReports && (reports_ - kReports) % kAgain == 0;
}

}  // namespace lockstep

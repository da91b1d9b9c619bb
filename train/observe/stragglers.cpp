#include "train/observe/stragglers.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

std::optional<SlowRanks> Stragglers::observe(std::span<const double> seconds_of_ranks) {
  const auto slowest = slowest_of(seconds_of_ranks);
  if (!slowest) return std::nullopt;
  SlowRanks slow{.ranks = {},
                 .reports = std::numeric_limits<std::int64_t>::max(),
                 .seconds = 0,
                 .median = slowest->median};
  bool is_new = false;
  reports_.resize(seconds_of_ranks.size());
  for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
    const double seconds = seconds_of_ranks[rank];
    auto& reports = reports_[rank];
    reports = seconds > kMostRatio * slow.median ? reports + 1 : 0;
    if (reports < kReports) continue;
    is_new = is_new || reports == kReports;
    slow.ranks.push_back(static_cast<int>(rank));
    slow.reports = std::min(slow.reports, reports);
    slow.seconds = std::max(slow.seconds, seconds);
  }
  constexpr std::int64_t kAgain = 10;
  ++since_said_;
  if (slow.ranks.empty() || (!is_new && since_said_ < kAgain)) return std::nullopt;
  since_said_ = 0;
  return slow;
}

}  // namespace lockstep

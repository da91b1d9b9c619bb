// Stragglers: the slow ranks that all others wait for. Collectives make the steps of all ranks
// equally long, so the time of each rank between collectives is compared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

struct SlowestRank {
  int rank = 0;
  double seconds = 0;  // time of a step, without waiting for other ranks
  double median = 0;   // median time of all ranks
  double ratio() const { return seconds / median; }
};

// Returns nullopt if the seconds of fewer than two ranks are known. The median of two ranks is the
// faster one.
std::optional<SlowestRank> slowest_of(std::span<const double> seconds_of_ranks);

// Ranks that were slow in several consecutive comparisons. A slow host has several of them, and the
// slowest one varies.
struct SlowRanks {
  std::vector<int> ranks;    // ascending
  std::int64_t reports = 0;  // number of consecutive comparisons in which all of them were slow
  double seconds = 0;        // time of the slowest of them, in the last comparison
  double median = 0;         // median time of all ranks, in the last comparison
  double ratio() const { return seconds / median; }
};

class Stragglers {
 public:
  static constexpr double kMostRatio = 1.1;  // ratio to the median above which a rank is slow
  static constexpr std::int64_t kReports = 3;

  // Adds a comparison. Returns the ranks to log: those slow in kReports consecutive comparisons or
  // more, when there is a new one, and then in every tenth comparison.
  std::optional<SlowRanks> observe(std::span<const double> seconds_of_ranks);

 private:
  std::vector<std::int64_t> reports_;  // consecutive slow comparisons, by rank
  std::int64_t since_said_ = 0;
};

}  // namespace lockstep

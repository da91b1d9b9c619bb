// Stragglers: the ranks that all others wait for. Collectives make the steps of all ranks equally
// long, so that what is compared is what each needs between them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

struct SlowestRank {
  int rank = 0;
  double seconds = 0;  // that it needs of a step, without what it waits for others
  double median = 0;   // of all ranks
  double ratio() const { return seconds / median; }
};

// Nothing where there are not two ranks whose seconds are known. Of two ranks the median is the
// faster one.
std::optional<SlowestRank> slowest_of(std::span<const double> seconds_of_ranks);

// Those that stood out in several comparisons one behind the other: more than one of a slow host,
// of which now this one is the slowest, now that one.
struct SlowRanks {
  std::vector<int> ranks;    // rising
  std::int64_t reports = 0;  // in which all of them stood out
  double seconds = 0;        // of the slowest of them, in the last
  double median = 0;         // of all ranks, likewise
  double ratio() const { return seconds / median; }
};

class Stragglers {
 public:
  static constexpr double kMostRatio = 1.1;  // of the median: beyond it a rank stands out
  static constexpr std::int64_t kReports = 3;

  // One more comparison. What the log shall say of it: those that stood out in so many, where one
  // is new among them, and then each tenth time.
  std::optional<SlowRanks> observe(std::span<const double> seconds_of_ranks);

 private:
  std::vector<std::int64_t> reports_;  // by rank: in which it stood out, one behind the other
  std::int64_t since_said_ = 0;
};

}  // namespace lockstep

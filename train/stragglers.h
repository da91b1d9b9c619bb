// Stragglers: the rank that all others wait for. Collectives make the steps of all ranks equally
// long, so that what is compared is what each needs between them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

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

class Stragglers {
 public:
  static constexpr double kMostRatio = 1.1;  // beyond it a rank stands out
  static constexpr std::int64_t kReports = 3;

  // Whether the log shall name it: it stood out in so many reports, each time the same rank; and
  // then in each tenth one.
  bool observe(const SlowestRank& slowest);
  std::int64_t reports() const { return reports_; }  // in which it stood out, one behind the other

 private:
  int rank_ = -1;
  std::int64_t reports_ = 0;
};

}  // namespace lockstep

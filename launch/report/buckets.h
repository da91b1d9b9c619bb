// Buckets: the numbers of a run of any length in bounded memory. Lines are put together, as many a
// bucket as it takes (a power of two), and of each metric a bucket keeps the least, the largest and
// the mean: no spike is lost, wherever it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "train/observe/metrics_reader.h"

namespace lockstep {

struct Bucket {
  struct Values {
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
    double sum = 0;
    std::int64_t count = 0;  // of lines that say it

    double mean() const {  // NaN where none says it
      return count == 0 ? StepMetrics::kUnknown
                        : std::clamp(sum / static_cast<double>(count), low, high);
    }
    double last = StepMetrics::kUnknown;
  };

  std::int64_t first_step = 0, last_step = 0;
  std::int64_t lines = 0;
  std::array<Values, kMetrics> values;

  const Values& operator[](Metric metric) const { return values[static_cast<std::size_t>(metric)]; }
};

class Buckets {
 public:
  explicit Buckets(std::size_t most) : most_(most) {}  // `most`: even

  void add(const StepMetrics& line);

  const std::vector<Bucket>& all() const { return buckets_; }  // in the order of their lines
  std::int64_t lines_each() const { return lines_each_; }      // the last may have fewer

  double mean(Metric metric) const;  // over all lines that say it; NaN where none does

 private:
  std::size_t most_;
  std::int64_t lines_each_ = 1;
  std::vector<Bucket> buckets_;
};

}  // namespace lockstep

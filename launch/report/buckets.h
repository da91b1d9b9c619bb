// Buckets: the metrics of a run of any length in bounded memory. A bucket combines a power of two
// of lines, and keeps minimum, maximum and mean of each metric. No spike is lost.
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
    std::int64_t count = 0;  // number of lines with a value

    double mean() const {  // NaN without values
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

  const std::vector<Bucket>& all() const { return buckets_; }  // in the order of lines
  std::int64_t lines_each() const { return lines_each_; }      // the last bucket may have fewer

  double mean(Metric metric) const;  // of all lines with a value; NaN without values

 private:
  std::size_t most_;
  std::int64_t lines_each_ = 1;
  std::vector<Bucket> buckets_;
};

}  // namespace lockstep

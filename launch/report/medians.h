// Medians: the median of each metric whose typical value a report shows, over any number of lines
// in bounded memory. Values are counted in bins with a width of 0.1%.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "train/observe/metrics_reader.h"

namespace lockstep {

// MedianOfMany computes a median with a precision of 0.1%; for equal values it is exact. Values
// below 2^-64 or above 2^64 are not distinguished.
class MedianOfMany {
 public:
  void add(double value);  // at least 0; NaN is ignored
  double median() const;   // the upper one of two middle values; NaN without values

 private:
  struct Bin {
    std::int64_t count = 0;
    double sum = 0;
  };
  static constexpr int kBits = 10;
  using Octave = std::array<Bin, 1 << kBits>;

  std::map<int, Octave> octaves_;  // by exponent; only those with values
  std::int64_t count_ = 0;
};

class Medians {
 public:
  // Speed and the parts of a step, except parts that few steps have: their mean is more useful.
  static constexpr bool has(Metric metric) {
    return metric == Metric::step_seconds || metric == Metric::tokens_per_second ||
           metric == Metric::mfu || metric == Metric::mfu_square ||
           (metric >= part(Component::products) && metric <= part(Component::other) &&
            metric != part(Component::data) && metric != part(Component::checkpoint));
  }

  void add(const StepMetrics& line);
  double operator[](Metric metric) const;  // requires has(metric); NaN without values

 private:
  std::array<MedianOfMany, kMetrics> all_;
};

}  // namespace lockstep

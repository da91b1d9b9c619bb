// Medians: of each metric whose typical value a report shows, over any number of lines in bounded
// memory. Values are counted in bins of a thousandth of their size.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "train/observe/metrics_reader.h"

namespace lockstep {

// The median of values, to a thousandth; of equal ones exact. Below 2^-64, and beyond 2^64, no
// sizes are told apart.
class MedianOfMany {
 public:
  void add(double value);  // at least 0; NaN is left out
  double median() const;   // of an even number the upper one in the middle; NaN of none

 private:
  struct Bin {
    std::int64_t count = 0;
    double sum = 0;
  };
  static constexpr int kBits = 10;
  using Octave = std::array<Bin, 1 << kBits>;

  std::map<int, Octave> octaves_;  // by their exponents, those that have values
  std::int64_t count_ = 0;
};

class Medians {
 public:
  // Speed, and parts of a step but those that few steps have: of these a mean says more.
  static constexpr bool has(Metric metric) {
    return metric == Metric::step_seconds || metric == Metric::tokens_per_second ||
           metric == Metric::mfu || metric == Metric::mfu_square ||
           (metric >= part(Component::products) && metric <= part(Component::other) &&
            metric != part(Component::data) && metric != part(Component::checkpoint));
  }

  void add(const StepMetrics& line);
  double operator[](Metric metric) const;  // one that has() says; NaN where no line does

 private:
  std::array<MedianOfMany, kMetrics> all_;
};

}  // namespace lockstep

// The median, for measurements with outliers.
#pragma once

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

namespace lockstep {

// For an even count, returns the upper of the two middle values; NaN if `values` is empty.
inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep

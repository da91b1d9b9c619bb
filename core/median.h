// The median, for figures of which a few may lie far outside the rest.
#pragma once

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

namespace lockstep {

// Of an even number the upper one of the two in the middle; NaN of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep

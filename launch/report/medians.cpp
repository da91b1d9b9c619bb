#include "launch/report/medians.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace lockstep {

void MedianOfMany::add(double value) {
  if (std::isnan(value)) return;
  constexpr double kLeast = 0x1p-64, kMost = 0x1p64;
  int exponent = 0;
  const double mantissa = std::frexp(std::clamp(value, kLeast, kMost), &exponent);  // 0.5 to 1
  const auto bin = static_cast<std::size_t>(std::ldexp(2 * mantissa - 1, kBits));
  Bin& into = octaves_[exponent][bin];
  ++into.count;
  into.sum += value;
  ++count_;
}

double MedianOfMany::median() const {
  std::int64_t behind = count_ / 2;  // number of values below the median
  for (const auto& [exponent, bins] : octaves_)
    for (const Bin& bin : bins) {
      if (behind < bin.count) return bin.sum / static_cast<double>(bin.count);
      behind -= bin.count;
    }
  return StepMetrics::kUnknown;
}

void Medians::add(const StepMetrics& line) {
  for (std::size_t i = 0; i < kMetrics; ++i)
    if (has(static_cast<Metric>(i))) all_[i].add(line.values[i]);
}

double Medians::operator[](Metric metric) const {
  LOCKSTEP_CHECK(has(metric), "no median of ", name(metric));
  return all_[static_cast<std::size_t>(metric)].median();
}

}  // namespace lockstep

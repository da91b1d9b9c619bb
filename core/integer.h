// Integer rounding.
#pragma once

#include <cstdint>

namespace lockstep {

// a / b rounded up, and n rounded up to a multiple of `to`, for nonnegative numbers.
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return divide_up(n, to) * to;
}

}  // namespace lockstep

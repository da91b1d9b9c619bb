#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace lockstep {

// 2^64 divided by the golden ratio, odd: its multiples are far apart.
inline constexpr std::uint64_t kGolden64 = 0x9e3779b97f4a7c15u;

// splitmix64's finaliser: a bijection of 64 bits in which each input bit flips half the output.
// Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators".
LOCKSTEP_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace lockstep

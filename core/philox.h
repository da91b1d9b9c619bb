// Philox4x32-10 computes random numbers as a pure function of (key, counter). They do not depend on
// the number of ranks or threads. Host and device compute the same bits.
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", table 2.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/dtype.h"

namespace lockstep {

using Philox4 = std::array<std::uint32_t, 4>;

// Returns four independent uniform 32-bit words. `key`: the seed; `counter_high`: the purpose;
// `counter_low`: the index of the draw.
LOCKSTEP_HOST_DEVICE constexpr Philox4 philox(std::uint64_t key, std::uint64_t counter_high,
                                              std::uint64_t counter_low) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  auto c0 = static_cast<std::uint32_t>(counter_low),
       c1 = static_cast<std::uint32_t>(counter_low >> 32);
  auto c2 = static_cast<std::uint32_t>(counter_high);
  auto c3 = static_cast<std::uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// Uniform in (0, 1): never 0, so its logarithm is finite.
LOCKSTEP_HOST_DEVICE constexpr float uniform_open(std::uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f;
}

// Purpose of random numbers from its name, by FNV-1a.
constexpr std::uint64_t purpose_of(std::string_view name) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : name)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace lockstep

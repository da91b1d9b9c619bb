// Order is the keyed permutation that maps the g-th sample to a row. It is a bijection in each
// epoch and O(1) in every argument, so a run starts at sample 10^12 as fast as at 0.
//
// It is a Feistel network over the bits of n - 1 with cycle-walking: results of n or above are
// permuted again. This terminates because the network is itself a bijection. The round function
// takes the high bits of a splitmix64 mix. A multiplication alone carries nothing from high bits to
// low bits, and gives neighbours similar low bits.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

// Permutation of [0, n), n >= 1, chosen by `key`.
class Permutation {
 public:
  Permutation(std::uint64_t key, std::int64_t n);
  std::int64_t operator()(std::int64_t i) const;

 private:
  static constexpr int kRounds = 6;
  std::int64_t n_;
  int left_bits_, right_bits_;
  std::array<std::uint64_t, kRounds> keys_;
};

// Key of the permutation of an epoch >= 0.
std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch);

// sample(g) = permutation(seed, g div n)(g mod n) for the global sample counter g >= 0.
std::int64_t sample_at(std::uint64_t seed, std::int64_t samples, std::int64_t g);

}  // namespace lockstep

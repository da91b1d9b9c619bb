// Order: the keyed permutation that says which sample is the g-th. A bijection of each epoch, O(1)
// in every argument, so that a run starts at sample 10^12 as fast as at 0.
//
// A Feistel network over the bits of n - 1 with cycle-walking: what falls on n or above is permuted
// again, which ends because the network is itself a bijection. Its round function takes the high
// bits of a splitmix64 mix: a multiplication alone carries nothing from high bits down, and leaves
// neighbours alike in their low bits.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

// A permutation of [0, n), n >= 1, chosen by `key`.
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

// What chooses the permutation of an epoch >= 0.
std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch);

// sample(g) = permutation(seed, g div n)(g mod n) for the global sample counter g >= 0.
std::int64_t sample_at(std::uint64_t seed, std::int64_t samples, std::int64_t g);

}  // namespace lockstep

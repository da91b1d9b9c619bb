#include "data/order.h"

#include <bit>

#include "core/error.h"
#include "core/mix.h"

namespace lockstep {
namespace {

constexpr std::uint64_t low_bits(std::uint64_t x, int bits) {
  return x & ((std::uint64_t{1} << bits) - 1);
}

constexpr std::uint64_t high_bits(std::uint64_t x, int bits) {
  return bits == 0 ? 0 : x >> (64 - bits);
}

}  // namespace

Permutation::Permutation(std::uint64_t key, std::int64_t n) : n_(n) {
  LOCKSTEP_CHECK(n >= 1, "a permutation of ", n, " samples");
  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
  for (std::uint64_t& round : keys_)
    round = mix64(key += kGolden64);
}

std::int64_t Permutation::operator()(std::int64_t i) const {
  LOCKSTEP_CHECK(0 <= i && i < n_, "index ", i, " of a permutation of ", n_);
  auto x = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = x >> right_bits_, right = low_bits(x, right_bits_);
    for (std::size_t r = 0; r < kRounds; r += 2) {
      left ^= high_bits(mix64(right ^ keys_[r]), left_bits_);
      right ^= high_bits(mix64(left ^ keys_[r + 1]), right_bits_);
    }
    x = (left << right_bits_) | right;
  } while (x >= static_cast<std::uint64_t>(n_));
  return static_cast<std::int64_t>(x);
}

std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch) {
  return mix64(mix64(seed + kGolden64) + static_cast<std::uint64_t>(epoch) * kGolden64);
}

std::int64_t sample_at(std::uint64_t seed, std::int64_t samples, std::int64_t g) {
  LOCKSTEP_CHECK(g >= 0 && samples >= 1, "sample ", g, " of ", samples);
  return Permutation(epoch_key(seed, g / samples), samples)(g % samples);
}

}  // namespace lockstep

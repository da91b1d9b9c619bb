// Random shapes and options from a seed. A failure names the seed. If LOCKSTEP_TEST_SEED is set to
// it, the full tier begins there.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/testing.h"

namespace lockstep::testing {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}

  std::uint64_t seed() const { return seed_; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const auto word = philox(seed_, purpose_of("draw"), index_++)[0];
    return low + static_cast<std::int64_t>(word % static_cast<std::uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }
  // A random size. Small sizes are more frequent than large ones, and so are those that often
  // expose errors: 1, multiples of the 16 lanes, and their neighbours.
  std::int64_t size(std::int64_t most) {
    const auto any = between(1, between(1, most));
    switch (between(0, 7)) {
      case 0: return 1;
      case 1:
      case 2: return std::clamp<std::int64_t>(any / 16 * 16 + between(-1, 1), 1, most);
      default: return any;
    }
  }
  Bench bench() { return {.seed = seed_, .threads = static_cast<int>(between(1, 3))}; }

 private:
  std::uint64_t seed_, index_ = 0;
};

template <class Check>
void for_seeds(std::uint64_t first, int count, Check&& check) {
  for (auto seed = first; seed < first + static_cast<std::uint64_t>(count); ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Draw draw(seed);
    check(draw);
    if (::testing::Test::HasFailure()) return;
  }
}
template <class Check>
void few_draws(Check&& check) {
  for_seeds(1, 16, check);
}
template <class Check>
void many_draws(Check&& check) {
  const char* seed = std::getenv("LOCKSTEP_TEST_SEED");
  for_seeds(seed != nullptr ? std::stoull(seed) : std::random_device{}(), 400, check);
}

}  // namespace lockstep::testing

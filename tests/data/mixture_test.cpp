#include "data/mixture.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "core/error.h"

namespace lockstep::testing::mixture_test {

__extension__ using Wide = __int128;
using Weights = std::vector<std::int64_t>;

// |count - n weight / sum|, in samples.
double error_of(std::int64_t count, std::int64_t n, std::int64_t weight, std::int64_t sum) {
  const auto off = Wide{count} * sum - Wide{n} * weight;
  return std::abs(static_cast<double>(off) / static_cast<double>(sum));
}

std::int64_t sum_of(const Weights& weights) {
  return std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
}

// Of all sources, over prefixes [from, from + samples), whose counts are `counts` at from.
double worst_error(const Weights& weights, std::int64_t from, std::int64_t samples) {
  const Mixture mixture(weights);
  auto counts = mixture.counts(from);
  const auto sum = sum_of(weights);
  double worst = 0;
  for (std::int64_t n = from; n < from + samples; ++n) {
    for (std::size_t s = 0; s < weights.size(); ++s)
      worst = std::max(worst, error_of(counts[s], n, weights[s], sum));
    const auto [source, index] = mixture.at(n);
    EXPECT_EQ(index, counts.at(source)) << "a gap in the samples of source " << source;
    ++counts[source];
    if (::testing::Test::HasFailure()) return worst;
  }
  EXPECT_EQ(counts, mixture.counts(from + samples));
  return worst;
}

// Weights over many orders of magnitude, or nearly equal, or as unbalanced as a tree can be.
std::vector<Weights> wild_weights() {
  std::mt19937_64 random(7);
  std::vector<Weights> all;
  for (std::size_t k = 1; k <= 200; k = k < 12 ? k + 1 : k + 47) {
    Weights wild, near, equal(k, 3);
    for (std::size_t s = 0; s < k; ++s) {
      wild.push_back(static_cast<std::int64_t>(random() >> (10 + random() % 54)) + 1);
      near.push_back(1'000'000 + static_cast<std::int64_t>(random() % 1000));
    }
    all.insert(all.end(), {wild, near, equal});
  }
  Weights fibonacci{1, 1};
  while (fibonacci.size() < 80)
    fibonacci.push_back(fibonacci.back() + fibonacci[fibonacci.size() - 2]);
  all.push_back(fibonacci);
  all.push_back({1, std::int64_t{1} << 61});
  all.push_back({1, 2, 4, 8, 16, 32, 64, 128, 256, 512});
  return all;
}

TEST(Mixture, every_prefix_has_each_share_within_two_samples_and_no_gap) {
  double worst = 0;
  for (const auto& weights : wild_weights())
    worst = std::max(worst, worst_error(weights, 0, 3'000));
  EXPECT_LE(worst, 2);
  EXPECT_GT(worst, 0.5) << "what is measured is not the error";
}

TEST(Mixture, full_every_prefix_of_every_number_of_sources) {
  std::mt19937_64 random(8);
  for (std::size_t k = 1; k <= 200; ++k) {
    Weights weights;
    for (std::size_t s = 0; s < k; ++s)
      weights.push_back(static_cast<std::int64_t>(random() >> (10 + random() % 54)) + 1);
    EXPECT_LE(worst_error(weights, 0, 100'000), 2) << k;
  }
}

TEST(Mixture, shares_are_exact_at_the_end_of_a_long_run) {
  for (const auto& weights : wild_weights())
    for (const std::int64_t from : {std::int64_t{1'000'000'000'000}, std::int64_t{1} << 50})
      EXPECT_LE(worst_error(weights, from, 300), 2 + std::ldexp(static_cast<double>(from), -62));
}

TEST(Mixture, one_source_has_every_sample) {
  const Mixture mixture(Weights{5});
  for (const std::int64_t n : {0, 1, 77}) {
    EXPECT_EQ(mixture.at(n).index, n);
    EXPECT_EQ(mixture.counts(n), Weights{n});
  }
}

// Kept by checkpoints: what is read of which sample.
TEST(Mixture, the_source_of_a_sample_never_changes) {
  const Mixture mixture(Weights{5, 3, 2});
  std::vector<std::size_t> sources;
  for (std::int64_t n = 0; n < 20; ++n)
    sources.push_back(mixture.at(n).source);
  EXPECT_EQ(sources,
            (std::vector<std::size_t>{0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 1, 0, 2, 0, 1, 0, 2, 0, 1}));
}

TEST(Mixture, shares_become_weights) {
  const auto weights = Mixture::weights_of(std::vector{0.75, 0.25});
  EXPECT_EQ(weights, (Weights{std::int64_t{3} << 51, std::int64_t{1} << 51}));
  EXPECT_EQ(Mixture::weights_of(std::vector{3.0, 1.0}), weights);
  EXPECT_EQ(Mixture::weights_of(std::vector{1e-30, 1e30}), (Weights{1, std::int64_t{1} << 53}));
  EXPECT_THROW(Mixture::weights_of(std::vector{1.0, 0.0}), Error);
  EXPECT_THROW(Mixture::weights_of(std::vector{1.0, std::nan("")}), Error);
  EXPECT_THROW(Mixture(Weights{}), Error);
  EXPECT_THROW(Mixture(Weights{1, 0}), Error);
  EXPECT_THROW(Mixture(Weights(3, std::int64_t{1} << 61)), Error);
  EXPECT_THROW(Mixture(Weights{1}).at(-1), Error);
}

}  // namespace lockstep::testing::mixture_test

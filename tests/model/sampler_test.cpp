#include "model/sampler.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <vector>

#include "tests/wording.h"

namespace lockstep::testing::sampler_test {

const std::vector<float> kLogits{0.5f, 2.0f, -1.0f, 1.0f, 2.0f};

std::map<int, double> shares(const Sampling& sampling, int draws) {
  Sampler sampler(sampling, static_cast<int>(kLogits.size()));
  std::map<int, double> share;
  for (int i = 0; i < draws; ++i)
    share[sampler.draw(kLogits, static_cast<std::uint64_t>(i))] += 1.0 / draws;
  return share;
}

TEST(Sampler, temperature_zero_takes_the_first_of_the_likeliest) {
  Sampler sampler({.temperature = 0}, 5);
  EXPECT_EQ(sampler.draw(kLogits, 7), 1);
}

TEST(Sampler, logits_that_are_not_finite_are_rejected_by_token_and_prompt) {
  struct Row {
    const char* name;
    std::uint64_t index;
    const char* pin;
  };
  for (const auto& [what, index, pin] :
       {Row{"one text", 7, "token 7: "},
        Row{"several texts", 4 * Sampler::kMostDraws + 9, "token 9 of prompt 5: "}})
    for (const float temperature : {0.0f, 1.0f})
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        Sampler sampler({.temperature = temperature}, 5);
        auto logits = kLogits;
        logits[3] = bad;
        expect_refusal<DataError>("model/sampler", str(what, ", ", bad), {pin, "token 3"},
                                  [&, at = index] { sampler.draw(logits, at); });
      }
}

TEST(Sampler, shares_of_tokens_follow_the_softmax) {
  const int draws = 40000;
  const auto share = shares({.temperature = 0.7f, .seed = 3}, draws);
  double total = 0;
  for (const float logit : kLogits)
    total += std::exp(logit / 0.7);
  for (int token = 0; token < 5; ++token) {
    const double p = std::exp(kLogits[static_cast<std::size_t>(token)] / 0.7) / total;
    const double deviation = std::sqrt(p * (1 - p) / draws);
    EXPECT_NEAR(share.count(token) ? share.at(token) : 0.0, p, 4 * deviation) << token;
  }
}

TEST(Sampler, top_k_keeps_the_k_likeliest) {
  for (const auto& [token, share] : shares({.top_k = 3}, 2000))
    EXPECT_TRUE(token == 1 || token == 3 || token == 4) << token << " " << share;
  EXPECT_EQ(shares({.top_k = 3}, 2000).size(), 3u);
}

TEST(Sampler, top_p_keeps_the_fewest_that_reach_p) {
  // Probabilities: tokens 1 and 4 have 0.382 each, 3 has 0.140: 0.7 needs the first two.
  EXPECT_EQ(shares({.top_p = 0.7f}, 2000).size(), 2u);
  EXPECT_EQ(shares({.top_p = 0.8f}, 2000).size(), 3u);
  EXPECT_EQ(shares({.top_p = 1e-6f}, 2000).size(), 1u);
}

TEST(Sampler, a_draw_is_a_function_of_seed_and_index) {
  Sampler a({.seed = 5}, 5), b({.seed = 5}, 5), c({.seed = 6}, 5);
  int differences = 0;
  for (std::uint64_t i = 100; i-- > 0;) {
    const int token = a.draw(kLogits, i);
    EXPECT_EQ(token, b.draw(kLogits, i));
    differences += token != c.draw(kLogits, i);
  }
  EXPECT_GT(differences, 20);
}

TEST(Sampler, padding_after_the_vocabulary_is_never_drawn) {
  Sampler sampler({}, 3);
  for (std::uint64_t i = 0; i < 200; ++i)
    EXPECT_LT(sampler.draw(kLogits, i), 3);
}

TEST(Sampler, values_out_of_range_are_refused) {
  const std::pair<const char*, Sampling> values[] = {{"temperature is -1", {.temperature = -1}},
                                                     {"temperature is nan", {.temperature = NAN}},
                                                     {"top-k is -1", {.top_k = -1}},
                                                     {"top-p is 0", {.top_p = 0}},
                                                     {"top-p is 1.5", {.top_p = 1.5f}}};
  for (const auto& [what, sampling] : values)
    expect_refusal<UsageError>("model/sampler", what, {what}, [&, s = sampling] { Sampler(s, 5); });
}

}  // namespace lockstep::testing::sampler_test

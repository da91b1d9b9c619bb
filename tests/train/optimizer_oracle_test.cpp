#include <gtest/gtest.h>

#include "tests/model/oracle.h"
#include "train/step/optimizer.h"

namespace lockstep::testing::optimizer_oracle_test {

class AdamWAgainstPyTorch : public ::testing::TestWithParam<Family> {};

// Each of the twenty steps is forward, backward, clipping and the update. An error in any of them
// grows.
TEST_P(AdamWAgainstPyTorch, twenty_losses_agree) {
  Loaded loaded(GetParam(), DType::fp32);
  auto& model = loaded.model;
  auto& bench = model.bench;
  const auto nominal = model.B * model.T;
  Optimizer optimizer(model.params, {.adamw = {.beta1 = 0.9f,
                                               .beta2 = 0.95f,
                                               .epsilon = 1e-8f,
                                               .weight_decay = 0.1f,
                                               .clip_norm = 1.0f,
                                               .nominal_tokens = nominal}});
  optimizer.allocate(bench.arena, bench.stream);
  const auto learning_rate = bench.random({1}, DType::fp32);
  learning_rate.as<float>()[0] = 1e-3f;
  const auto expected = loaded.oracle.expected("adamw_losses");
  for (std::size_t step = 0; step < expected.size(); ++step) {
    const double sum = model.forward_backward(1.0f / static_cast<float>(nominal));
    EXPECT_NEAR(sum / loaded.valid, expected[step], 1e-5 * expected[step]) << "step " << step;
    optimizer.step(bench.stream, model.scratch,
                   {.learning_rate = learning_rate,
                    .step = bench.integers({static_cast<std::int32_t>(step) + 1}),
                    .loss_sum = model.targets.loss_sum,
                    .valid_tokens = model.targets.valid_tokens});
  }
}

INSTANTIATE_TEST_SUITE_P(all, AdamWAgainstPyTorch, ::testing::ValuesIn(kFamilies),
                         [](const auto& p) { return std::string(name(p.param)); });

}  // namespace lockstep::testing::optimizer_oracle_test

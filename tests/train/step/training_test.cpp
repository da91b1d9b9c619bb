// The numbers of a step: gradients of masked means, gradient accumulation, skipped updates,
// learning.
#include "train/step/training.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include "tests/model/reference_model.h"
#include "tests/train/training_rig.h"
#include "train/step/batch_shape.h"

namespace lockstep::testing::training_test {

class Precision : public ::testing::TestWithParam<DType> {};

TEST_P(Precision, a_single_batch_is_memorized) {
  Rig rig(tiny(GetParam()));
  const double first = rig.step(1, 1e-2).loss;
  double last = first;
  for (int i = 2; i <= 250; ++i)
    last = rig.step(i, 1e-2).loss;
  EXPECT_NEAR(first, std::log(37.0), 0.5);
  EXPECT_LT(last, 0.01);
}

INSTANTIATE_TEST_SUITE_P(types, Precision, kFloatTypes, dtype_name);

TEST(Training, stochastic_rounding_and_bf16_moments_learn_too) {
  auto config = tiny(DType::bf16);
  config.stochastic_rounding = true;
  config.moments = DType::bf16;
  Rig rig(config);
  double last = 0;
  for (int i = 1; i <= 300; ++i)
    last = rig.step(i, i < 200 ? 1e-2 : 2e-3).loss;
  EXPECT_LT(last, 0.05);
}

TEST(Training, a_step_allocates_nothing_from_the_heap) {
  auto plain = tiny(), mixed = tiny(DType::bf16), rounded = tiny(DType::bf16);
  rounded.stochastic_rounding = true;
  rounded.moments = DType::bf16;
  for (const auto& config : {plain, mixed, rounded})
    expect_a_step_allocates_nothing_from_the_heap(config);
}

TEST(Training, micro_batches_do_not_change_the_gradient) {
  auto config = tiny();
  Rig two(config);
  config.micro_batch_sequences = 4;
  Rig one(config);
  const auto a = two.step(1, 0), b = one.step(1, 0);
  EXPECT_NEAR(a.loss, b.loss, 1e-6);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-6 * b.grad_norm);
  expect_close(two.gradients(), one.gradients(), 1e-5, "gradients");
}

// The mask is random and very unequal: the first micro-batch keeps about 1 token in 8, the second
// 7 in 8. Scaled by nominal / valid, each gradient is the derivative of the mean over the kept
// tokens, by finite differences of the float64 model.
TEST(Training, a_masked_batch_has_the_gradient_of_the_masked_mean) {
  auto config = tiny();
  config.model = small_model(Family::llama3, 8, 2);
  config.model.layers = 1;
  config.model.kv_heads = 1;
  config.model.mlp_width = 12;
  config.model.init_std = 0.3f;  // each gradient is larger than the rounding of the others
  config.sequence_length = 8;
  Rig rig(config);
  const auto half = rig.targets.elements() / 2, nominal = 2 * half;
  auto* ids = rig.targets.as<std::int32_t>();
  std::int64_t kept[2] = {};
  for (std::int64_t n = 0; n < nominal; ++n) {
    const bool eighth = philox(11, 0, static_cast<std::uint64_t>(n))[0] % 8 == 0;
    if (eighth == (n < half))
      ++kept[n / half];
    else
      ids[n] = -1;
  }
  ASSERT_TRUE(0 < kept[0] && 4 * kept[0] < kept[1]) << kept[0] << ' ' << kept[1];
  const auto numbers = rig.step(1, 0);
  ASSERT_EQ(numbers.valid_tokens, kept[0] + kept[1]);

  const auto values = [](ConstTensor t) {
    return std::vector<int>(t.as<std::int32_t>(), t.as<std::int32_t>() + t.elements());
  };
  const ReferenceBatch batch{.sequences = 4,
                             .length = 8,
                             .inputs = values(rig.inputs),
                             .targets = values(rig.targets),
                             .document_start = values(rig.document_start)};
  ReferenceModel model(config.model);
  const auto for_each = [&](auto&& visit) {
    for (const auto& shard : rig.training.params().shards())
      for (const auto& segment : shard.segments)
        visit(rig.training.params().spec(segment.id).name,
              shard.weight.rows(segment.shard_begin, segment.count),
              shard.grad.rows(segment.shard_begin, segment.count));
  };
  for_each([&](const std::string& name, ConstTensor weight, ConstTensor) {
    model.parameters[name] = doubles(weight);
  });
  const auto valid = static_cast<double>(numbers.valid_tokens);
  const auto mean = [&] { return model.loss_sum(batch) / valid; };
  EXPECT_NEAR(numbers.loss, mean(), 1e-5);

  double squares = 0;
  for_each([&](const std::string& name, ConstTensor, ConstTensor sum) {
    const auto expected = finite_differences(model.parameters[name], mean);
    auto gradient = doubles(sum);
    for (auto& g : gradient)
      g *= static_cast<double>(nominal) / valid;
    expect_close(gradient, expected, 1e-5, name);
    for (const double g : expected)
      squares += g * g;
  });
  EXPECT_NEAR(numbers.grad_norm, std::sqrt(squares), 1e-5 * numbers.grad_norm);
}

TEST(Training, a_masked_sequence_does_not_count) {
  auto config = tiny();
  config.global_batch_sequences = 3;  // 2 micro-batches of 2, the last sequence is surplus
  Rig three(config);
  config.micro_batch_sequences = 3;
  Rig whole(config);
  const auto all_of = three.batch(0, 3);
  three.training.begin_step(1, 0);
  three.training.micro_step(three.batch(0, 2));
  const auto surplus = three.bench.integers(std::vector<std::int32_t>(32, 0), {2, 16});
  const auto masked = three.bench.integers(std::vector<std::int32_t>(32, -1), {2, 16});
  std::copy_n(all_of.inputs.as<std::int32_t>() + 32, 16, surplus.as<std::int32_t>());
  std::copy_n(all_of.targets.as<std::int32_t>() + 32, 16, masked.as<std::int32_t>());
  three.training.micro_step({.inputs = surplus,
                             .targets = masked,
                             .positions = three.positions.rows(0, 2),
                             .document_start = three.document_start.rows(0, 2)});
  three.training.finish_step();
  const auto a = three.training.numbers(1), b = whole.step(1, 0);
  EXPECT_EQ(a.valid_tokens, b.valid_tokens);
  EXPECT_NEAR(a.loss, b.loss, 1e-6);
  expect_close(three.gradients(), whole.gradients(), 1e-5, "gradients");
}

// The second half of each sequence has no targets, and the first half does not attend to it.
TEST(Training, tokens_after_the_last_target_change_no_bit) {
  Rig one(tiny()), other(tiny());
  for (Rig* rig : {&one, &other})
    for (std::int64_t n = 0; n < rig->targets.elements(); ++n) {
      if (n % 16 < 8) continue;
      rig->targets.as<std::int32_t>()[n] = -1;
      auto& id = rig->inputs.as<std::int32_t>()[n];
      if (rig == &other) id = (id + 5) % 37;
    }
  const auto a = one.step(1, 1e-2), b = other.step(1, 1e-2);
  EXPECT_EQ(a.valid_tokens, 32);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(one.gradients(), other.gradients());
  EXPECT_EQ(one.weights(), other.weights());
}

TEST(Training, a_step_without_a_valid_token_changes_nothing) {
  Rig rig(tiny());
  rig.step(1, 1e-2);
  const auto before = rig.weights();
  std::fill_n(rig.targets.as<std::int32_t>(), rig.targets.elements(), -1);
  const auto numbers = rig.step(2, 1e-2);
  EXPECT_FALSE(numbers.applied);
  EXPECT_EQ(numbers.valid_tokens, 0);
  EXPECT_TRUE(std::isnan(numbers.loss));
  EXPECT_EQ(rig.weights(), before);
  EXPECT_EQ(*rig.training.optimizer().updates().as<std::int32_t>(), 1);
}

TEST(Training, a_gradient_norm_that_is_not_finite_skips_the_update_and_training_continues) {
  Rig rig(tiny());
  rig.step(1, 1e-2);
  auto& shard = rig.training.params().shards()[1];
  const float kept = shard.weight.as<float>()[3];
  shard.weight.as<float>()[3] = std::numeric_limits<float>::infinity();
  const auto before = rig.weights();
  EXPECT_FALSE(rig.step(2, 1e-2).applied);
  EXPECT_EQ(rig.weights(), before);
  shard.weight.as<float>()[3] = kept;
  EXPECT_TRUE(rig.step(3, 1e-2).applied);
  EXPECT_EQ(*rig.training.optimizer().updates().as<std::int32_t>(), 2);
}

// Neighbouring steps beyond 2^24, where floats have gaps, must not share their random numbers.
TEST(Training, late_steps_have_their_own_random_rounding) {
  auto config = tiny(DType::bf16);
  config.stochastic_rounding = true;
  const auto weights_after = [&](std::int64_t step) {
    Rig rig(config);
    rig.step(step, 1e-3);
    return rig.weights();
  };
  const std::int64_t late = (std::int64_t{1} << 24) + 4;
  EXPECT_EQ(weights_after(late), weights_after(late));
  EXPECT_NE(weights_after(late), weights_after(late + 1));
}

TEST(Training, recompute_is_bitwise_exact) {
  expect_recompute_is_exact(tiny(), 3);
}

TEST(Training, memory_use_equals_the_measured_bytes) {
  for (const auto recompute : {Recompute::none, Recompute::block}) {
    auto config = tiny();
    config.recompute = recompute;
    expect_the_measured_bytes_are_used(config);
  }
}

// In step 2 the all-gathers of the embedding and of the first block wait only for their own update,
// the first of two. That of the second block waits for both.
TEST(Training, the_first_all_gathers_overlap_the_optimizer) {
  auto config = tiny();
  config.model.layers = 4;
  config.mesh = {.shard = 4};
  Stream compute(Device{}, "compute", Stream::Mode::measuring, 1);
  OpLog log;
  compute.set_op_log(&log);
  compute.record();  // makes it the first stream of the log
  Arenas arenas = Arenas::measure(Device{});
  LoneWorld one_of_all(0, 4);
  Training training(config, compute, arenas, make_comms(one_of_all, config.mesh));
  const Batch batch = batch_shape(config.micro_batch_sequences, config.sequence_length);
  training.begin_step(1, 0);
  training.micro_step(batch, true);
  log.clear();
  training.finish_step();
  training.begin_step(2, 0);
  training.micro_step(batch, true);
  std::map<std::int64_t, int> after;  // event -> updates before it
  std::vector<int> waited;            // of each all-gather: updates that it waits for
  int done = 0, wait = 0;
  for (const auto& entry : log.entries()) {
    const bool is_gathers = log.streams()[entry.stream] == "gathers";
    if (entry.what == OpLog::What::op && std::string_view(entry.op.name) == "adamw_update") ++done;
    if (entry.what == OpLog::What::record) after[entry.event] = done;
    if (entry.what == OpLog::What::wait && is_gathers) wait = std::max(wait, after[entry.event]);
    if (entry.what == OpLog::What::op && is_gathers) waited.push_back(wait);
  }
  ASSERT_EQ(done, 2);
  ASSERT_GE(waited.size(), 3u);
  EXPECT_EQ(waited[0], 1);
  EXPECT_EQ(waited[1], 1);
  EXPECT_EQ(waited[2], 2);
}

}  // namespace lockstep::testing::training_test

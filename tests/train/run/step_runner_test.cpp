#include "train/run/step_runner.h"

#include <gtest/gtest.h>

namespace lockstep::testing::step_runner_test {

RunConfig of_20_steps() {
  Config config;
  config.train.steps = 20;
  config.data.validation = {"held_out"};
  config.log.every_steps = 2;
  config.log.sample_every_steps = 3;
  config.eval.every_steps = 4;
  config.checkpoint.every_steps = 5;
  config.plan.compare_every_steps = 6;
  config.train.weight_hash_every_steps = 7;
  return RunConfig(config);
}

std::string in_words(const Due& due) {
  std::string text;
  const auto add = [&](bool is_due, const char* what) { text += is_due ? what : ""; };
  add(due.last, "last ");
  add(due.line, "line ");
  add(due.sample, "sample ");
  add(due.evaluation, "evaluation ");
  add(due.checkpoint, "checkpoint ");
  add(due.comparison, "comparison ");
  add(due.hash, "hash ");
  return text;
}

TEST(Due, each_action_has_its_interval) {
  const auto config = of_20_steps();
  EXPECT_EQ(in_words(due_after(config, 1)), "");
  EXPECT_EQ(in_words(due_after(config, 2)), "line ");
  EXPECT_EQ(in_words(due_after(config, 3)), "sample ");
  EXPECT_EQ(in_words(due_after(config, 4)), "line evaluation ");
  EXPECT_EQ(in_words(due_after(config, 5)), "checkpoint hash ") << "a checkpoint has a hash";
  EXPECT_EQ(in_words(due_after(config, 6)), "line sample comparison ");
  EXPECT_EQ(in_words(due_after(config, 7)), "hash ");
}

TEST(Due, all_actions_are_due_after_the_last_step) {
  auto config = of_20_steps();
  const std::string all = "last line sample evaluation checkpoint comparison hash ";
  EXPECT_EQ(in_words(due_after(config, 20)), all);
  config.log.every_steps = config.eval.every_steps = config.checkpoint.every_steps = 0;
  config.train.weight_hash_every_steps = 0;
  EXPECT_EQ(in_words(due_after(config, 20)), all) << "an interval of 0 means only at the end";
  EXPECT_EQ(in_words(due_after(config, 10)), "");
}

TEST(Due, samples_and_comparisons_need_an_interval_and_evaluations_need_data) {
  auto config = of_20_steps();
  config.data.validation.clear();
  config.log.sample_every_steps = config.plan.compare_every_steps = 0;
  EXPECT_EQ(in_words(due_after(config, 20)), "last line checkpoint hash ");
}

TEST(Due, actions_that_read_the_device_need_the_numbers_first) {
  const auto config = of_20_steps();
  for (const std::int64_t step : {3, 4, 5, 20})
    EXPECT_TRUE(due_after(config, step).needs_numbers()) << step;
  for (const std::int64_t step : {1, 2, 7})
    EXPECT_FALSE(due_after(config, step).needs_numbers()) << step;
}

}  // namespace lockstep::testing::step_runner_test

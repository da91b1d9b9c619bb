// Changes of a run that its configuration does not describe.
#include "train/run/amendments.h"

#include <gtest/gtest.h>

#include "tests/train/log.h"

namespace lockstep::testing::amendments_test {

constexpr const char* kReader = "train/amendments";

TEST(Amendments, are_restored_from_a_checkpoint) {
  const Amendments all{rollback_to({100}), skip_of({120, 130}),
                       extension_at(200, 1.0 / 3, 1e-3, 150)};
  Json about;
  about.set("amendments", to_json(all));
  EXPECT_EQ(amendments_in(Json::parse(about.dump(), "about")), all);
  EXPECT_EQ(amendments_in(Json::Object{}), Amendments{}) << "an older checkpoint";
  EXPECT_EQ(find(all, "skip_steps 120..130"), &all[1]);
  EXPECT_EQ(find(all, "skip_steps 120..131"), nullptr);
}

// The steps before an extension keep the rates that they had.
TEST(Amendments, an_extension_leaves_the_rates_before_it) {
  Config config;
  config.optimizer.learning_rate = 1;
  config.schedule = {.kind = Config::Decay::linear, .decay_fraction = 1};
  config.train.steps = 100;
  const LearningRate before(config);
  config.train.steps = 300;
  const double rate = before.at(80);
  const Amendments extended{extension_at(80, rate, rate, 100)};
  for (std::int64_t step = 1; step <= 80; ++step)
    EXPECT_EQ(learning_rate_at(config, extended, step), before.at(step)) << step;
  EXPECT_EQ(learning_rate_at(config, extended, 81), rate);
  EXPECT_NEAR(learning_rate_at(config, extended, 191), rate / 2, 1e-12) << "half of 220 steps";
}

TEST(Amendments, a_range_of_steps_is_first_and_last) {
  EXPECT_EQ(StepRange::parse("7..7").last, 7);
  EXPECT_EQ(StepRange::parse("120..130").first, 120);
  for (const char* wrong : {"", "..", "7", "7..", "..7", "8..7", "0..7", "1..2..3", "1...3", "a..b",
                            "1..99999999999999999999"})
    EXPECT_THROW(StepRange::parse(wrong), UsageError) << wrong;
  expect_refusal<UsageError>(kReader, "a range of steps", {"--skip-steps 8..7", "FIRST..LAST"},
                             [] { StepRange::parse("8..7"); });
}

// A step has 4 samples. The run is at step 10 and sample 1000, as after a smaller batch.
TEST(Amendments, skipped_steps_that_are_not_computed_yet_are_left_out_of_the_data) {
  const DataHistory history{
      {.length = 32,
       .sources = {{.name = "a", .fingerprint = "f", .seed = 1, .weight = 1, .counter = 5}}}};
  const auto now = with_skips(history, {skip_of({3, 5}), skip_of({12, 13})}, 10, 1000, 4);
  ASSERT_EQ(now.size(), 2u) << "steps 3 to 5 are in the history of the checkpoint";
  EXPECT_EQ(now[1].first_sample, 1004);
  EXPECT_EQ(now[1].sources[0].counter, 5 + 1012);
  EXPECT_EQ(with_skips(history, {skip_of({11, 11})}, 10, 1000, 4)[1].first_sample, 1000);
}

}  // namespace lockstep::testing::amendments_test

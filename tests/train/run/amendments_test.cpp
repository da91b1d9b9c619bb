// Changes of a run that its configuration does not describe.
#include "train/run/amendments.h"

#include <gtest/gtest.h>

#include "tests/train/log.h"

namespace lockstep::testing::amendments_test {

constexpr const char* kReader = "train/amendments";

TEST(Amendments, are_restored_from_a_checkpoint) {
  const Amendments all{rollback_to({100}), skip_of({120, 130}),
                       extension_at(200, 1.0 / 3, 1e-3, 150),
                       amendment_of(7, "set", 210, {"optimizer.learning_rate=1", "eval.tokens=2"}),
                       amendment_of(8, "save", 220)};
  Json about;
  about.set("amendments", to_json(all));
  EXPECT_EQ(amendments_in(Json::parse(about.dump(), "about")), all);
  EXPECT_EQ(amendments_in(Json::Object{}), Amendments{}) << "an older checkpoint";
  EXPECT_EQ(find(all, "skip_steps 120..130"), &all[1]);
  EXPECT_EQ(find(all, "skip_steps 120..131"), nullptr);
}

TEST(Amendments, of_live_requests_have_their_number) {
  const Rollback back{100, StepRange{120, 130}, 7};
  EXPECT_EQ(back.request(), "request 7 from_step 100 skip_steps 120..130");
  const auto again = Rollback::parse(back.request());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->step, 100);
  EXPECT_EQ(again->skip, back.skip);
  EXPECT_EQ(again->number, 7);
  EXPECT_FALSE(Rollback::parse("request 7 from_step 100")->skip);
  for (const char* other : {"", "from_step 100", "request 7 set", "request 7", "extend"})
    EXPECT_FALSE(Rollback::parse(other)) << other;
  EXPECT_EQ(request_number("request 12 save"), 12);
  EXPECT_EQ(request_number("from_step 100"), 0);
}

TEST(Amendments, checkpoints_that_a_request_saved_are_kept_until_released) {
  Amendments all{amendment_of(1, "save", 10), amendment_of(2, "save", 20),
                 amendment_of(3, "release", 10), amendment_of(4, "save", 30)};
  EXPECT_EQ(kept_steps(all), (std::vector<std::int64_t>{20, 30}));
  forget_saves_after(20, all);
  EXPECT_EQ(kept_steps(all), std::vector<std::int64_t>{20});
}

// A rollback by flags keeps the live changes, which are settings of later steps, and nothing else.
TEST(Amendments, a_file_adds_its_requests_to_those_of_a_checkpoint) {
  const auto saved = amendment_of(1, "save", 10), changed = amendment_of(2, "set", 20, {"a.b=1"});
  const AmendmentFile file{{saved, skip_of({30, 31}), changed}, ""};
  EXPECT_EQ(file.with({saved}), file.amendments);
  EXPECT_EQ(file.with({}, /*only_changes=*/true), Amendments{changed});
  EXPECT_EQ(changes_of(file.amendments), Amendments{changed});
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
  // A later rollback may skip steps before those of an older skip.
  EXPECT_EQ(with_skips(history, {skip_of({15, 15}), skip_of({12, 13})}, 10, 1000, 4),
            with_skips(history, {skip_of({12, 13}), skip_of({15, 15})}, 10, 1000, 4));
}

}  // namespace lockstep::testing::amendments_test

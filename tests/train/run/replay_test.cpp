#include "train/run/replay.h"

#include <cmath>
#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::replay_test {

StepReport at(std::int64_t step) {
  StepReport r;
  r.step = step;
  r.learning_rate = 1e-3 / static_cast<double>(step);
  r.loss = 1.0 / static_cast<double>(step);
  r.grad_norm = 0.1 * static_cast<double>(step);
  if (step % 2 == 0) r.weight_hash = 0x1000u + static_cast<unsigned>(step);
  return r;
}

class ReplayTest : public ::testing::Test {
 protected:
  void record(std::int64_t first, std::int64_t last) const {
    std::ofstream out(metrics_, std::ios::app);
    for (auto step = first; step <= last; ++step)
      out << to_json_line(at(step), 5);
  }
  std::pair<std::int64_t, std::int64_t> found(const std::vector<std::int64_t>& checkpoints,
                                              std::int64_t most) const {
    const auto replay = find_replay(metrics_, checkpoints, most);
    if (!replay) return {-1, 0};
    for (std::size_t i = 0; i < replay->steps.size(); ++i)
      EXPECT_EQ(replay->steps[i].step, replay->from + 1 + static_cast<std::int64_t>(i));
    return {replay->from, std::ssize(replay->steps)};
  }

  TemporaryDirectory directory_;
  std::filesystem::path metrics_ = directory_ / "metrics.jsonl";
};

TEST_F(ReplayTest, recorded_steps_read_back_bit_for_bit) {
  record(1, 4);
  const auto steps = recorded_steps(metrics_, 2);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0], (RecordedStep{3, 1e-3 / 3, 1.0 / 3, 0.1 * 3, std::nullopt}));
  EXPECT_EQ(steps[1], (RecordedStep{4, 1e-3 / 4, 0.25, 0.1 * 4, "0000000000001004"}));
  EXPECT_TRUE(recorded_steps(directory_ / "absent", 0).empty());
}

TEST_F(ReplayTest, a_partial_last_line_is_ignored_and_a_damaged_line_is_an_error_that_names_it) {
  record(1, 2);
  std::ofstream(metrics_, std::ios::app) << R"({"step":3,"loss":1)";
  EXPECT_EQ(recorded_steps(metrics_, 0).size(), 2u);
  std::ofstream(metrics_, std::ios::app) << "\n";
  expect_refusal<DataError>("train/replay", "a damaged line", {"metrics.jsonl", "line 3"},
                            [&] { recorded_steps(metrics_, 0); });
  EXPECT_EQ(recorded_steps(metrics_, 3).size(), 0u);  // later steps are not affected
}

TEST_F(ReplayTest, begins_at_the_newest_checkpoint_with_enough_steps_after_it) {
  EXPECT_EQ(found({10}, 5), std::pair(-1L, 0L));
  record(1, 33);
  EXPECT_EQ(found({10, 20, 30}, 3), std::pair(30L, 3L));
  EXPECT_EQ(found({10, 20, 30}, 4), std::pair(20L, 4L));
  EXPECT_EQ(found({10, 20, 30}, 1000), std::pair(10L, 23L));
  EXPECT_EQ(found({30, 33}, 10), std::pair(30L, 3L));
  EXPECT_EQ(found({33}, 10), std::pair(-1L, 0L));
  EXPECT_EQ(found({}, 10), std::pair(-1L, 0L));
  record(36, 40);  // a log with a hole
  EXPECT_EQ(found({30}, 10), std::pair(30L, 3L));
  EXPECT_EQ(found({35}, 10), std::pair(35L, 5L));
}

TEST_F(ReplayTest, a_step_that_differs_is_an_error_with_both_values) {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const RecordedStep recorded{7, 0.1, 3.25, 0.5, "00000000000000aa"};
  EXPECT_NO_THROW(check_again(recorded, recorded));
  EXPECT_NO_THROW(check_again({7, 0, nan, nan, {}}, {7, 0, nan, nan, {}}));
  auto loss = recorded, norm = recorded, hash = recorded, rate = recorded;
  loss.loss = std::nextafter(3.25, 4.0);
  norm.grad_norm = nan;
  hash.weight_hash = "00000000000000ab";
  for (const auto& [name, now] : {std::pair("loss", loss), {"norm", norm}, {"hash", hash}})
    expect_refusal<Error>("train/replay", str("another ", name),
                          {"step 7", "loss 3.25, gradient norm 0.5, weight hash 00000000000000aa"},
                          [&, step = now] { check_again(recorded, step); });
  rate.learning_rate = 0.2;
  rate.loss = 4;
  expect_refusal<ConfigError>("train/replay", "another schedule is no error of the machine",
                              {"0.1", "0.2"}, [&] { check_again(recorded, rate); });
}

}  // namespace lockstep::testing::replay_test

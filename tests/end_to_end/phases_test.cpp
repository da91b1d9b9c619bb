// A run with phases starts again at each that changes more than the learning rate.
#include "tests/end_to_end/run.h"

namespace lockstep::testing::phases_test {

class Phases : public EndToEnd {
 protected:
  void add(const std::string& text) {
    std::ofstream(directory_ / "config.toml", std::ios::app) << text;
  }
};

TEST_F(Phases, a_phase_begins_after_a_save_and_another_start) {
  add("[[phase]]\nfrom_step = 15\ntrain.sequence_length = 64\nmodel.rope_theta = 1e6\n"
      "[[phase]]\nfrom_step = 30\nschedule.kind = 'linear'\n");
  const auto first = run(train("run"), 75);
  expect_contains(first, "phase after step 15: 256 tokens a step, sequences of 64 tokens, memory ");
  expect_contains(first, "the next phase begins after step 15: everything is saved");
  EXPECT_EQ(losses("run").size(), 15u);
  // A kill within the second phase resumes there.
  Process killed = start(train("run"));
  ASSERT_TRUE(killed.says("saved step 20 ")) << killed.err();
  killed.signal(SIGKILL);
  killed.wait();
  expect_contains(killed.err(), "model.rope_theta is 1e+06 from step 16 on, 500000 before");
  run(train("run"), 0);
  EXPECT_EQ(losses("run").size(), 40u);
  run(train("whole"), 75);
  run(train("whole"), 0);
  EXPECT_EQ(losses("run"), losses("whole"));
  EXPECT_EQ(state("run", "step-00000040"), state("whole", "step-00000040"));
  const auto rate = [&](std::int64_t step) {
    return metrics("run", step).at("learning_rate").as_double();
  };
  EXPECT_EQ(rate(31), rate(30)) << "a phase of the learning rate alone needs no other start";
  EXPECT_NEAR(rate(36), 0.5 * rate(30), 1e-12);
}

// The settings by hand, as one would have changed them at each step.
TEST_F(Phases, equal_a_run_whose_settings_were_changed_by_hand) {
  run(with(train("hand"), {"train.steps=15"}), 0);
  run(with(train("hand", {"--extend"}),
           {"train.steps=40", "train.sequence_length=64", "train.batch_tokens=512"}),
      0);
  add("[[phase]]\nfrom_step = 15\ntrain.sequence_length = 64\ntrain.batch_tokens = 512\n");
  run(train("run"), 75);
  run(train("run"), 0);
  EXPECT_EQ(losses("run"), losses("hand"));
  EXPECT_EQ(state("run", "step-00000040"), state("hand", "step-00000040"));
}

TEST_F(Phases, a_start_finds_its_phase_if_the_newest_checkpoint_is_damaged) {
  add("[[phase]]\nfrom_step = 15\ntrain.batch_tokens = 512\n");
  run(train("run"), 75);
  damage(checkpoint("run", 15));
  expect_contains(run(train("run"), 75), "rerun the same command");
  expect_contains(run(train("run"), 75), "the next phase begins after step 15");
  run(train("run"), 0);
  EXPECT_EQ(losses("run").size(), 40u);
}

}  // namespace lockstep::testing::phases_test

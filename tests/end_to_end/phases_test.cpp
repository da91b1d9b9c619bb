// A run with phases begins again at each that changes more than the learning rate.
#include "tests/end_to_end/run.h"

namespace lockstep::testing::phases_test {

class Phases : public EndToEnd {
 protected:
  void add(const std::string& text) {
    std::ofstream(directory_ / "config.toml", std::ios::app) << text;
  }
};

TEST_F(Phases, a_phase_begins_after_a_save_in_the_same_process) {
  add("[[phase]]\nfrom_step = 15\ntrain.sequence_length = 64\nmodel.rope_theta = 1e6\n"
      "[[phase]]\nfrom_step = 30\nschedule.kind = 'linear'\n");
  // A kill within the second phase resumes there.
  Process killed = start(train("run"));
  ASSERT_TRUE(killed.says("saved step 20 ")) << killed.err();
  killed.signal(SIGKILL);
  killed.wait();
  expect_contains(killed.err(),
                  "phase after step 15: 256 tokens a step, sequences of 64 tokens, memory ");
  expect_contains(killed.err(), "the next phase begins after step 15");
  expect_contains(killed.err(), "model.rope_theta is 1e+06 from step 16 on, 500000 before");
  run(train("run"), 0);
  EXPECT_EQ(losses("run").size(), 40u);
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
  run(train("run"), 0);
  EXPECT_EQ(losses("run"), losses("hand"));
  EXPECT_EQ(state("run", "step-00000040"), state("hand", "step-00000040"));
}

TEST_F(Phases, are_verified_each_alone_and_skips_do_not_span_them) {
  add("[[phase]]\nfrom_step = 20\ntrain.batch_tokens = 512\n");
  const std::vector<std::string> keep{"checkpoint.keep_last=10"};
  expect_contains(run(with(train("run", {"--skip-steps", "18..22"}), keep), 78),
                  "another phase begins after step 20");
  run(with(train("run"), keep), 0);
  expect_contains(run(with(train("run", {"--verify-resume", "35"}), keep), 0),
                  "computed steps 21 to 40 again");
}

TEST_F(Phases, are_checked_before_the_first_step) {
  write_tokens(directory_ / "other.bin", 21000);
  const auto config = "[data]\ntrain = '" + path("tokens.bin") + "'\n" +
                      read_all(directory_ / "config.toml") + "[[phase]]\nfrom_step = 20\n";
  const std::pair<std::string, int> wrong[] = {{"data.train = '" + path("other.bin") + "'\n", 78},
                                               {"data.train = 'missing'\n", 65},
                                               {"data.validation = 'missing'\n", 65}};
  for (const auto& [setting, code] : wrong) {
    std::ofstream(directory_ / "config.toml") << config << setting;
    run({"train", path("config.toml"), "--run", path("run")}, code);
    EXPECT_FALSE(fs::exists(directory_ / "run")) << setting;
  }
}

TEST_F(Phases, with_another_learning_rate_than_planned_are_refused_if_it_jumps) {
  run(with(train("run"), {"checkpoint.keep_last=10"}), 0);
  for (const std::int64_t step : {30, 40})
    fs::remove_all(checkpoint("run", step));
  add("[[phase]]\nfrom_step = 10\noptimizer.learning_rate = 1e-4\n");
  auto command = with(train("run"), {"checkpoint.keep_last=10"});
  std::erase(command, "--extend");
  expect_contains(run(command, 78), "would jump from 0.01 to 0.0001");
}

TEST_F(Phases, a_start_finds_its_phase_if_the_newest_checkpoint_is_damaged) {
  add("[[phase]]\nfrom_step = 15\ntrain.batch_tokens = 512\n");
  Process killed = start(train("run", {"--set", "train.steps=20000"}));
  ASSERT_TRUE(killed.says("saved step 15 ")) << killed.err();
  killed.signal(SIGKILL);
  killed.wait();
  for (auto step : {20, 30, 40, 50, 60, 70, 80, 90})  // if the kill came late
    fs::remove_all(checkpoint("run", step));
  ASSERT_TRUE(fs::exists(checkpoint("run", 15)));
  damage(checkpoint("run", 15));
  std::ofstream(directory_ / "run/saved_step.txt") << "15\n";
  expect_contains(run(train("run"), 75), "rerun the same command");
  expect_contains(run(train("run"), 0), "the next phase begins after step 15");
  EXPECT_EQ(losses("run").size(), 40u);
}

}  // namespace lockstep::testing::phases_test

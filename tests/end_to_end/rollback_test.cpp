// A run goes back to an earlier checkpoint, skips data, and is extended.
#include "tests/end_to_end/run.h"

namespace lockstep::testing::rollback_test {

class Rollback : public EndToEnd {
 protected:
  std::vector<std::string> run_of(const std::string& name, std::vector<std::string> more = {}) {
    auto command = with(train(name), {"checkpoint.keep_last=10"});
    std::erase(command, "--extend");
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  bool has(const std::string& name) const { return fs::exists(directory_ / name); }
  // The losses of the steps from `first` to `last`.
  std::vector<double> part(const std::string& name, std::int64_t first, std::int64_t last) const {
    std::vector<double> all;
    for (auto step = first; step <= last; ++step)
      all.push_back(metrics(name, step).at("loss").as_double());
    return all;
  }
};

TEST_F(Rollback, a_run_goes_back_once_and_keeps_what_it_abandons) {
  run(run_of("run"), 0);
  const auto whole = losses("run");
  const auto before = state("run", "step-00000040");
  // Killed after the rollback, and then after a save: the same command resumes.
  Process killed = start(run_of("run", {"--from-step", "20"}));
  ASSERT_TRUE(killed.says("went back to step 20")) << killed.err();
  killed.signal(SIGKILL);
  killed.wait();
  EXPECT_TRUE(has("run/checkpoints/step-00000040.replaced-1"));
  EXPECT_TRUE(has("run/metrics.before-1.jsonl"));
  run(run_of("run", {"--from-step", "20"}), 0);
  EXPECT_FALSE(has("run/metrics.before-2.jsonl"));
  EXPECT_EQ(losses("run"), whole) << "the rollback itself changes no bit";
  EXPECT_EQ(state("run", "step-00000040"), before);
  expect_contains(run(run_of("run", {"--from-step", "20"}), 0), "the run is at step 40 of 40");
  EXPECT_EQ(read_all(path("run/saved_step.txt")), "40\n");
  EXPECT_FALSE(has("run/checkpoints/step-00000040.replaced-2"));
  expect_contains(run(run_of("run", {"--from-step", "17"}), 78),
                  "no checkpoint of step 17 in " + path("run/checkpoints") +
                      "; choose one of steps 10, 20, 30, 40");
  EXPECT_TRUE(has("run/checkpoints/step-00000040"));
}

// Without a learning rate, the loss of a step is a function of its samples alone.
TEST_F(Rollback, skipped_steps_give_their_place_to_the_later_ones) {
  const std::vector<std::string> frozen{"--set", "optimizer.learning_rate=0"};
  run(run_of("whole", with(frozen, {"train.steps=60"})), 0);
  run(run_of("run", with(frozen, {"train.steps=30"})), 0);
  auto back = frozen;
  back.insert(back.end(), {"--from-step", "10", "--skip-steps", "23..27"});
  run(run_of("run", with(back, {"train.steps=30"})), 0);
  EXPECT_EQ(part("run", 1, 22), part("whole", 1, 22));
  EXPECT_EQ(part("run", 23, 30), part("whole", 28, 35));
  EXPECT_NE(part("run", 23, 30), part("whole", 23, 30));
  expect_contains(run(run_of("run", with({"--skip-steps", "24..25"},
                                         {"optimizer.learning_rate=0", "train.steps=30"})),
                      78),
                  "the run is at step 30 and has already read samples of this range; go back to a "
                  "checkpoint before step 24 with --from-step");
}

TEST_F(Rollback, a_resume_within_and_after_skipped_steps_is_exact) {
  const std::vector<std::string> skip{"--skip-steps", "15..25", "--set",
                                      "checkpoint.every_steps=5"};
  run(run_of("whole", skip), 0);
  for (const char* saved : {"saved step 10 ", "saved step 20 "}) {
    const std::string name = str("run-", saved[11], saved[12]);
    Process killed = start(run_of(name, skip));
    ASSERT_TRUE(killed.says(saved)) << killed.err();
    killed.signal(SIGKILL);
    killed.wait();
    run(run_of(name, skip), 0);
    EXPECT_EQ(losses(name), losses("whole"));
    EXPECT_EQ(state(name, "step-00000040"), state("whole", "step-00000040"));
  }
  auto verify = skip;
  verify.insert(verify.end(), {"--verify-resume", "30"});
  expect_contains(run(run_of("whole", verify), 0), "computed steps 11 to 40 again");
}

TEST_F(Rollback, a_run_that_has_ended_is_extended_only_on_request) {
  run(run_of("run", {"--set", "train.steps=20", "--set", "schedule.kind=cosine"}), 0);
  const std::vector<std::string> longer{"--set", "train.steps=40", "--set", "schedule.kind=cosine"};
  expect_contains(run(run_of("run", longer), 78), "the run has ended at step 20; pass --extend");
  EXPECT_TRUE(has("run/checkpoints/step-00000020"));
  auto extended = longer;
  extended.emplace_back("--extend");
  Process killed = start(run_of("run", extended));
  ASSERT_TRUE(killed.says("saved step 30 ")) << killed.err();
  killed.signal(SIGKILL);
  killed.wait();
  run(run_of("run", extended), 0);
  const auto rate = [&](std::int64_t step) {
    return metrics("run", step).at("learning_rate").as_double();
  };
  EXPECT_EQ(rate(21), rate(20));
  EXPECT_LT(rate(40), 0.2 * rate(21));
  // The rates of the extended run do not depend on the kill.
  EXPECT_NE(rate(31), rate(21));
  expect_contains(run(run_of("run", {"--init-from", path("run")}), 78),
                  "started from random weights");
}

}  // namespace lockstep::testing::rollback_test

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
  expect_contains(
      run(run_of("run",
                 with({"--skip-steps", "24..25"}, {"optimizer.learning_rate=0", "train.steps=30"})),
          78),
      "the run is at step 30 and has already read samples of this range; go back to a checkpoint "
      "before step 24 with --from-step");
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

// The skip is recorded before the first save.
TEST_F(Rollback, a_killed_start_leaves_its_skip_to_a_start_without_the_flags) {
  const std::vector<std::string> skip{"--from-step", "10", "--skip-steps", "13..17"};
  run(run_of("whole"), 0);
  run(run_of("whole", skip), 0);
  run(run_of("run"), 0);
  Process killed = start(run_of("run", skip));
  ASSERT_TRUE(killed.says("went back to step 10")) << killed.err();
  killed.signal(SIGKILL);
  killed.wait();
  run(run_of("run"), 0);
  EXPECT_EQ(losses("run"), losses("whole"));
  // Another range is another request.
  const auto again = run(run_of("run", {"--from-step", "10", "--skip-steps", "12..18"}), 0);
  expect_contains(again, "went back to step 10");
  EXPECT_TRUE(has("run/metrics.before-2.jsonl"));
}

// Each state that a kill within a rollback leaves is continued by the same command.
TEST_F(Rollback, an_interrupted_rollback_is_continued) {
  run(run_of("whole"), 0);
  const auto whole = losses("whole");
  for (const bool metrics_are_moved : {false, true}) {
    const std::string name = metrics_are_moved ? "late" : "early";
    run(run_of(name), 0);
    std::ofstream(directory_ / name / "amendments.json")
        << R"({"amendments": [{"at_step": 20, "request": "from_step 20"}],)"
        << R"( "unfinished": "from_step 20"})";
    if (metrics_are_moved) {  // and one of two checkpoints is renamed
      fs::rename(directory_ / name / "checkpoints/step-00000030",
                 directory_ / name / "checkpoints/step-00000030.replaced-1");
    }
    run(run_of(name, {"--from-step", "20"}), 0);
    EXPECT_EQ(losses(name), whole);
    EXPECT_TRUE(has(name + "/checkpoints/step-00000040.replaced-1"));
    EXPECT_TRUE(has(name + "/metrics.before-1.jsonl"));
    EXPECT_FALSE(has(name + "/metrics.before-2.jsonl"));
  }
}

TEST_F(Rollback, a_command_that_is_refused_changes_nothing) {
  run(run_of("run", {"--skip-steps", "35..38"}), 0);
  damage(checkpoint("run", 10));
  const auto before = losses("run");
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"--from-step", "20", "--skip-steps", "45..46"}, "the run has only 40 steps"},
      {{"--from-step", "20", "--skip-steps", "15..25"}, "before step 15 with --from-step"},
      {{"--from-step", "20", "--set", "optimizer.learning_rate=1"}, "would jump"}};
  for (const auto& [flags, expected] : refused)
    expect_contains(run(run_of("run", flags), 78), expected);
  expect_contains(run(run_of("run", {"--from-step", "10"}), 65),
                  "choose one of steps 10, 20, 30, 40");
  EXPECT_EQ(losses("run"), before);
  for (const char* step : {"20", "30", "40"})
    EXPECT_TRUE(has(str("run/checkpoints/step-000000", step)));
}

TEST_F(Rollback, works_with_local_checkpoints_and_an_archive) {
  const std::vector<std::string> copies{"--set", "checkpoint.local_directory=" + path("local"),
                                        "--set", "checkpoint.archive_directory=" + path("archive"),
                                        "--set", "checkpoint.keep_every_steps=10"};
  run(run_of("whole"), 0);
  run(run_of("run", copies), 0);
  auto back = copies;
  back.insert(back.end(), {"--from-step", "20"});
  run(run_of("run", back), 0);
  EXPECT_EQ(losses("run"), losses("whole"));
  run(run_of("run", back), 0);
  EXPECT_FALSE(has("run/checkpoints/step-00000040.replaced-2")) << "applied once";
  for (const auto& archived : fs::recursive_directory_iterator(directory_ / "archive"))
    EXPECT_EQ(archived.path().string().find("replaced-2"), std::string::npos);
}

class Fork : public Rollback {};

// A fork is the run itself in another directory.
TEST_F(Fork, continues_with_the_bits_of_its_source) {
  run(run_of("source"), 0);
  run({"checkpoint", "fork", path("source"), "--step", "20", "--out", path("fork")}, 0);
  const auto file = directory_ / "fork/checkpoints/step-00000020/rank-00000.safetensors";
  EXPECT_EQ(fs::hard_link_count(file), 2u);
  run({"train", path("fork/config.toml")}, 0);
  EXPECT_EQ(losses("fork"), losses("source"));
  EXPECT_EQ(state("fork", "step-00000040"), state("source", "step-00000040"));
  // Of the newest step; and of a fork.
  run({"checkpoint", "fork", path("fork"), "--out", path("again")}, 0);
  EXPECT_TRUE(has("again/checkpoints/step-00000040"));
}

TEST_F(Fork, changes_its_settings_for_all_phases) {
  std::ofstream(directory_ / "config.toml", std::ios::app)
      << "[[phase]]\nfrom_step = 10\noptimizer.learning_rate = 5e-3\n";
  run(run_of("source"), 0);
  const auto said = run({"checkpoint", "fork", path("source"), "--step", "30", "--out",
                         path("fork"), "--set", "schedule.kind=linear", "--set",
                         "schedule.decay_steps=10", "--set", "optimizer.learning_rate=5e-3"},
                        0);
  expect_contains(said, "phase 1: optimizer.learning_rate is ignored");
  run({"train", path("fork/config.toml")}, 0);
  EXPECT_EQ(metrics("fork", 31).at("learning_rate").as_double(), 5e-3);
  EXPECT_NEAR(metrics("fork", 36).at("learning_rate").as_double(), 2.5e-3, 1e-15);
}

TEST_F(Fork, is_refused_with_what_to_do) {
  run(run_of("source"), 0);
  const auto fork = [&](const std::string& out, const char* step) {
    return std::vector<std::string>{"checkpoint", "fork", path("source"), "--step", step,
                                    "--out",      out};
  };
  expect_contains(run(fork(path("fork"), "17"), 78), "10, 20, 30, 40");
  expect_contains(run(fork(path("source/inside"), "20"), 64), "outside of");
  expect_contains(run(fork("", "20"), 64), "--out");
  expect_contains(run(fork(path("source"), "20"), 64), "--out");
  damage(checkpoint("source", 20));
  run(fork(path("fork"), "20"), 65);
  EXPECT_FALSE(has("fork"));
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

// A run that is killed many times, at any moment, ends with the bits of an uninterrupted run.
#include <random>

#include "tests/end_to_end/run.h"

namespace lockstep::testing::kill_test {

class Killed : public EndToEnd {
 protected:
  std::vector<std::string> train_to(const std::string& run, std::int64_t steps,
                                    bool save_every_step) const {
    return with(train(run),
                {"schedule.warmup_steps=4",  // the default depends on the number of steps
                 "train.steps=" + std::to_string(steps),
                 save_every_step ? "checkpoint.every_steps=1" : "checkpoint.every_steps=0"});
  }
  std::vector<std::string> killed_to(std::int64_t steps) const {
    auto command = train_to("killed", steps, true);
    if (!tiers_) return command;
    return with(command,
                {"checkpoint.local_directory=" + path("local"), "checkpoint.keep_every_steps=5",
                 "checkpoint.archive_directory=" + path("archive")});
  }

  // Starts the run and kills it: half of the times at its start, half during steps and saves.
  void start_and_kill() {
    Process process = start(killed_to(1'000'000'000));
    const bool stepping = random_() % 2 == 0;
    const bool says = !stepping || process.says("saved step ");
    ASSERT_TRUE(says) << process.err();
    const auto most_ms = stepping ? 100 : 500;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (1000 * most_ms)));
    process.signal(SIGKILL);
    ASSERT_EQ(process.wait(), 128 + SIGKILL) << process.err();
  }

  std::int64_t saved() const {
    std::int64_t newest = 0;
    std::error_code absent;  // killed before it created the directory
    std::vector<fs::path> places{directory_ / "killed/checkpoints"};
    for (const auto& entry : fs::directory_iterator(directory_ / "local", absent))
      places.push_back(entry.path());
    for (const auto& place : places)
      for (const auto& entry : fs::directory_iterator(place, absent))
        if (const auto name = entry.path().filename().string();
            name.starts_with("step-") && name.find('.') == std::string::npos)
          newest = std::max<std::int64_t>(newest, std::stoll(name.substr(5)));
    return newest;
  }

  void kill_again_and_again(int kills) {
    for (int i = 0; i < kills; ++i) {
      const auto before = saved();
      ASSERT_NO_FATAL_FAILURE(start_and_kill()) << "kill " << i;
      ASSERT_GE(saved(), before) << "kill " << i;
    }
    const auto last = saved() + 5;
    std::printf("killed %d times in %lld steps\n", kills, static_cast<long long>(last - 5));
    run(killed_to(last), 0);
    if (tiers_)
      for (const auto& archive : fs::directory_iterator(directory_ / "archive"))
        run({"checkpoint", "verify", archive.path().string()}, 0);
    run(train_to("whole", last, false), 0);
    EXPECT_TRUE(losses("killed") == losses("whole"));
    const auto name = checkpoint("whole", last).filename().string();
    EXPECT_TRUE(state("killed", name) == state("whole", name));
    EXPECT_FALSE(state("whole", name).empty());
  }

  bool tiers_ = false;  // save in a local directory, and copy milestones to an archive

 private:
  std::mt19937_64 random_{std::random_device{}()};
};

TEST_F(Killed, twenty_times_a_run_ends_with_the_bits_of_an_uninterrupted_one) {
  kill_again_and_again(20);
}

TEST_F(Killed, ten_times_a_run_with_a_local_directory_ends_with_the_same_bits) {
  tiers_ = true;
  kill_again_and_again(10);
}

TEST_F(Killed, full_hundreds_of_times_a_run_ends_with_the_bits_of_an_uninterrupted_one) {
  kill_again_and_again(250);
}

TEST_F(Killed, full_hundreds_of_times_a_run_with_a_local_directory_ends_with_the_same_bits) {
  tiers_ = true;
  kill_again_and_again(250);
}

TEST_F(Killed, soak_thousands_of_times_a_run_ends_with_the_bits_of_an_uninterrupted_one) {
  kill_again_and_again(25000);
}

}  // namespace lockstep::testing::kill_test

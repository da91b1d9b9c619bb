// Kills processes at each I/O call of their saves. tests/end_to_end/kill_ranks_test.py kills one
// rank while the others live.
#include <array>
#include <atomic>
#include <csignal>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/durability/checkpoint_rig.h"

namespace lockstep::testing::kill_test {

// Left is memory that survives the killed process.
struct Left {
  std::atomic<int> saved = 0;                          // saves that returned on rank 0
  std::array<std::atomic<std::size_t>, 4> calls = {};  // of each rank, after all saves
};

class KilledSaves : public Durability {
 protected:
  KilledSaves() {
    void* memory =
        mmap(nullptr, sizeof(Left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    LOCKSTEP_CHECK(memory != MAP_FAILED, "cannot map memory");
    left_ = new (memory) Left;
  }
  ~KilledSaves() override { munmap(left_, sizeof(Left)); }

  // Saves in another process, which dies at call number `call` of a rank. False if that rank makes
  // fewer calls.
  bool dies(const fs::path& root, int ranks, int victim, std::size_t call, Disk::Death death) {
    left_->saved = 0;
    const pid_t child = fork();
    LOCKSTEP_CHECK(child >= 0, "cannot fork");
    if (child == 0) _exit(save_in_child(root, ranks, victim, call, death));
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0) << "a save failed";
      return false;
    }
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    ++deaths_;
    return true;
  }

  // Returns whether the process died. Its checkpoints must be complete, and the next save works.
  bool survives(int ranks, int victim, std::size_t call, Disk::Death death) {
    SCOPED_TRACE(str("rank ", victim, " of ", ranks, " dies ",
                     death == Disk::Death::before ? "before" : "within", " call ", call));
    const TemporaryDirectory directory(fast_directory());
    if (!dies(directory.path(), ranks, victim, call, death)) return false;
    const auto saved = static_cast<std::size_t>(left_->saved);
    const auto found = newest(directory.path());
    const auto before = saved == 0 ? -1 : saves_[saved - 1].step;
    EXPECT_TRUE(found == before || (saved < saves_.size() && found == saves_[saved].step))
        << "found " << found << " after " << before;
    save(directory.path(), {{9, 1}}, ranks);
    EXPECT_EQ(newest(directory.path()), 9);
    EXPECT_EQ(unfinished(directory.path()), std::vector<fs::path>{});
    return true;
  }

  void survives_at_every_call(int ranks, int victim, std::size_t step = 1) {
    for (const auto death : {Disk::Death::before, Disk::Death::within})
      for (std::size_t call = 0; survives(ranks, victim, call, death); call += step)
        if (HasFailure()) return;
    std::printf("killed %d times in saves of %d ranks\n", deaths_, ranks);
  }
  static constexpr int kAnyThread = -1;  // of the process

  // Step 2 is saved again, as after a resume from step 1. Only the newest two stay.
  std::vector<Save> saves_ = {{1, 2}, {2, 2}, {3, 2}, {2, 0}, {4, 2}};
  Left* left_;
  int deaths_ = 0;

 private:
  int save_in_child(const fs::path& root, int ranks, int victim, std::size_t call,
                    Disk::Death death) {
    try {
      const Disk disk(root);
      if (victim == kAnyThread) Disk::kill_process_at(call, death);
      save(
          root, saves_, ranks,
          [&](World& world) {
            if (world.rank() == victim) Disk::kill_at(call, death);
          },
          [&](World& world) {
            if (world.rank() == 0) ++left_->saved;
            left_->calls.at(static_cast<std::size_t>(world.rank())) = Disk::calls_of_this_thread();
          });
      return 0;
    } catch (...) {
      return 1;
    }
  }
};

TEST_F(KilledSaves, at_any_call_of_one_rank_leave_a_checkpoint) {
  survives_at_every_call(1, 0);
}

TEST_F(KilledSaves, at_any_call_of_rank_0_of_two_leave_a_checkpoint) {
  survives_at_every_call(2, 0);
}

// Each process is a start that claims an epoch.
class KilledEpochs : public KilledSaves {
 protected:
  KilledEpochs() { has_epochs_ = true; }
};

TEST_F(KilledEpochs, at_some_calls_of_one_rank_leave_a_checkpoint) {
  survives_at_every_call(1, 0, 3);
}
TEST_F(KilledEpochs, at_some_calls_of_rank_0_of_two_leave_a_checkpoint) {
  survives_at_every_call(2, 0, 5);
}
TEST_F(KilledEpochs, full_at_any_call_of_rank_0_of_two_leave_a_checkpoint) {
  survives_at_every_call(2, 0);
}

// The state is so large that separate threads write it and read it back.
class KilledLargeSaves : public KilledSaves {
 protected:
  KilledLargeSaves() {
    state_.push_back(whole_slice("large", bench_.poisoned({5'000'000}, DType::fp32)));
    saves_ = {{1, 1}, {2, 1}};
  }
};

TEST_F(KilledLargeSaves, at_some_calls_of_any_thread_leave_a_checkpoint) {
  survives_at_every_call(1, kAnyThread, 7);
}
TEST_F(KilledLargeSaves, full_at_any_call_of_any_thread_leave_a_checkpoint) {
  survives_at_every_call(1, kAnyThread);
}

TEST_F(KilledSaves, at_some_calls_of_four_ranks_leave_a_checkpoint) {
  constexpr int kRanks = 4, kDeaths = 40;
  {
    const TemporaryDirectory directory(fast_directory());
    ASSERT_FALSE(dies(directory.path(), kRanks, 0, SIZE_MAX, Disk::Death::before));
  }
  std::array<std::size_t, kRanks> calls = {};
  std::copy(left_->calls.begin(), left_->calls.end(), calls.begin());
  std::mt19937 random(6);
  for (int i = 0; i < kDeaths && !HasFailure(); ++i) {
    const auto victim = random() % kRanks;
    const auto call = random() % calls.at(victim);
    const auto death = random() % 2 == 0 ? Disk::Death::before : Disk::Death::within;
    EXPECT_TRUE(survives(kRanks, static_cast<int>(victim), call, death));
  }
  std::printf("killed %d times in saves of %d ranks\n", deaths_, kRanks);
}

}  // namespace lockstep::testing::kill_test

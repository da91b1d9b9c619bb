// Checkpoints on a disk that keeps any part of unsynced data: any names, and any blocks of writes.
#include <cstdio>
#include <random>

#include "tests/durability/checkpoint_rig.h"

namespace lockstep::testing::reordering_test {

using Action = Disk::Action;

// The state has a tensor of several blocks.
class Reordering : public Durability {
 protected:
  Reordering() { state_.push_back(whole_slice("large", bench_.poisoned({10, 500}, DType::fp32))); }

  // The moments after calls whose effects must be synced.
  static std::vector<std::size_t> moments(const Disk& disk) {
    std::vector<std::size_t> moments;
    for (std::size_t i = 0; i < disk.calls().size(); ++i)
      switch (disk.calls()[i].action) {
        case Action::create:
        case Action::make_directory:
        case Action::write:
        case Action::truncate:
        case Action::rename:
        case Action::remove: moments.push_back(i + 1); break;
        default: break;
      }
    return moments;
  }
  // `found` must be the newest saved step, or the one whose save was in progress.
  void expect_announced(std::size_t calls, std::int64_t found) const {
    std::int64_t before = -1;
    bool returned = calls == 0;
    for (const auto& [end, step] : announced_) {
      if (end > calls) {
        EXPECT_TRUE(found == before || (!returned && found == step))
            << "found " << found << " after " << before;
        return;
      }
      before = step;
      returned = end == calls;
    }
    EXPECT_EQ(found, before);
  }
  void lose_some(int times) {
    constexpr std::uint64_t kSeed = 20261122;
    for (const int ranks : {1, 2}) {
      const TemporaryDirectory directory(fast_directory());
      Disk disk(directory.path());
      announced_.clear();
      // Step 2 is saved again, as after a resume from step 1. Only the newest two stay.
      const std::vector<Save> saves{{1, 2}, {2, 0}, {3, 2}, {4, 2}, {2, 0}, {5, 2}};
      save(
          directory.path(), saves, ranks, [](World&) {},
          [&](World& world) {
            if (world.rank() == 0)
              announced_.emplace_back(disk.calls().size(), saves[announced_.size()].step);
          });
      const auto all = moments(disk);
      for (int i = 0; i < times / 2; ++i) {
        std::mt19937_64 random(kSeed + static_cast<std::uint64_t>(i));
        const auto calls = all[random() % all.size()];
        SCOPED_TRACE(str("state ", i, " of ", ranks, " ranks, behind ", calls, " of ",
                         disk.calls().size(), " calls, the last on ",
                         disk.calls()[calls - 1].path));
        write_rest(disk.rest(calls, random), rest_ / "rest");
        expect_announced(calls, newest(rest_ / "rest"));
        if (HasFailure()) return;
      }
      std::printf("%d ranks: %d states at %zu moments\n", ranks, times / 2, all.size());
    }
  }

 private:
  std::vector<std::pair<std::size_t, std::int64_t>> announced_;  // calls before the return, step
};

TEST_F(Reordering, the_newest_saved_checkpoint_survives_any_loss_of_unsynced_data) {
  lose_some(2000);
}

TEST_F(Reordering, full_the_newest_saved_checkpoint_survives_any_loss_of_unsynced_data) {
  lose_some(12'000);
}

TEST_F(Reordering, soak_the_newest_saved_checkpoint_survives_any_loss_of_unsynced_data) {
  lose_some(50'000);
}

}  // namespace lockstep::testing::reordering_test

// Checkpoints of a run whose starts claim epochs: power losses, kills, and a stale process that
// goes on after another start has taken over the run.
#include <cstdio>

#include "core/file.h"
#include "tests/durability/checkpoint_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::epochs_test {

class EpochDurability : public Durability {
 protected:
  EpochDurability() { has_epochs_ = true; }

  std::vector<std::int64_t> steps(const fs::path& root) {
    return checkpoint_steps(directory_of(root));
  }
  void expect_no_unfinished(const fs::path& root) {
    EXPECT_EQ(unfinished(root), std::vector<fs::path>{});
  }
};

TEST_F(EpochDurability, the_newest_saved_checkpoint_survives_a_power_loss_at_any_call) {
  Disk disk(directory_.path());
  std::vector<std::pair<std::size_t, std::int64_t>> announced = {{0, -1}};
  // Two starts.
  for (const auto& saves : {std::vector<Save>{{1, 1}, {2, 1}}, {{3, 1}}})
    save(
        disk.root(), saves, 1, [](World&) {},
        [&, next = saves.begin()](World&) mutable {
          announced.emplace_back(disk.calls().size(), next++->step);
        });
  at_every_moment(disk, rest_ / "rest", [&](std::size_t calls, const fs::path& rest) {
    std::size_t next = 0;  // the first save that had not returned
    while (next < announced.size() && announced[next].first <= calls)
      ++next;
    const auto before = announced[next - 1].second;
    const auto during = next < announced.size() ? announced[next].second : before;
    const auto found = newest(rest);
    EXPECT_TRUE(found == before || found == during) << "found " << found << " after " << before;
  });
}

TEST_F(EpochDurability, a_start_after_a_power_loss_at_any_call_finds_the_same_checkpoints) {
  Disk disk(directory_.path());
  save(disk.root(), {{1, 0}, {2, 0}, {3, 2}});
  const auto first = disk.calls().size();
  save(disk.root(), {{4, 1}});
  Disk::Rest before;
  // The moments of the second start.
  for (const auto loss : Disk::kLosses)
    for (auto calls = first; calls <= disk.calls().size(); ++calls) {
      SCOPED_TRACE(str("loss ", static_cast<int>(loss), " behind ", calls, " calls"));
      auto rest = disk.rest(calls, loss);
      if (rest == before) continue;
      write_rest(rest, rest_ / "rest");
      before = std::move(rest);
      const auto found = newest(rest_ / "rest");
      EXPECT_TRUE(found == 3 || found == 4);
      Epoch::claim(directory_of(rest_ / "rest"));
      EXPECT_EQ(newest(rest_ / "rest"), found);
      expect_no_unfinished(rest_ / "rest");
      if (HasFailure()) return;
    }
}

// The state at each step is a function of the step, so `newest` also compares contents.
TEST_F(EpochDurability, a_stale_process_changes_nothing_after_a_takeover_at_any_of_its_calls) {
  int stale = 0, whole = 0;
  for (std::size_t call = 0;; ++call) {
    SCOPED_TRACE(str("taken over at call ", call));
    const TemporaryDirectory directory(fast_directory());
    Disk disk(directory.path());
    save(disk.root(), {{1, 0}, {2, 0}, {4, 0}});
    std::optional<std::vector<std::int64_t>> counted;
    std::int64_t resumed = 0;
    bool ended = false;
    claimed_ = [&, first = true]() mutable {
      if (!std::exchange(first, false)) return;
      Disk::interrupt_at(call, [&] {
        resumed = newest(disk.root());
        save(disk.root(), {{resumed + 1, 0}, {resumed + 2, 0}});
        counted = steps(disk.root());
      });
    };
    try {
      // It saves step 3 anew, so it sets aside steps 4 and 3, and prunes.
      save(disk.root(), {{3, 2}, {3, 2}, {5, 1}});
    } catch (const TransientError&) {
      ended = true;
    } catch (const DataError&) {  // its directory has another name; see RunDirectory::check
      ended = true;
    }
    if (!counted) break;  // it makes fewer calls
    ++(ended ? stale : whole);
    EXPECT_EQ(steps(disk.root()), *counted);
    EXPECT_EQ(newest(disk.root()), resumed + 2);
    // The next start loses nothing either.
    Epoch::claim(directory_of(disk.root()));
    const auto found = steps(disk.root());
    for (const auto step : *counted)
      EXPECT_TRUE(std::ranges::find(found, step) != found.end()) << step;
    EXPECT_EQ(newest(disk.root()), resumed + 2);
    expect_no_unfinished(disk.root());
    if (HasFailure()) return;
  }
  std::printf("taken over at %d calls; %d times the process had nothing left to do\n", stale,
              whole);
  EXPECT_GT(stale, 100);
}

TEST_F(EpochDurability, a_file_system_with_other_renames_is_an_error_at_the_start) {
  save(directory_.path(), {{1, 0}, {2, 0}});
  const auto epochs = directory_of(directory_.path()) / "epochs";
  const auto before = directory_entries(epochs);
  const auto refuses = [&](Disk::Rename rename, const char* name) {
    Disk::set_rename(rename);
    expect_refusal<ConfigError>("durability/epochs", name, {"--run"},
                                [&] { Epoch::claim(epochs.parent_path()); });
    Disk::set_rename(Disk::Rename::correct);
    EXPECT_EQ(directory_entries(epochs), before);
    EXPECT_EQ(newest(directory_.path()), 2);
  };
  refuses(Disk::Rename::overwrites, "a directory is overwritten");
  refuses(Disk::Rename::removes_first, "a file is absent for a while");
}

TEST_F(EpochDurability, a_start_with_another_one_at_any_of_its_calls_loses_no_checkpoint) {
  int lost = 0, won = 0;
  for (std::size_t call = 0;; ++call) {
    SCOPED_TRACE(str("another start at call ", call));
    const TemporaryDirectory directory(fast_directory());
    Disk disk(directory.path());
    save(disk.root(), {{1, 0}, {2, 0}});
    bool both = false;
    Disk::interrupt_at(call, [&] {
      save(disk.root(), {{3, 0}});
      both = true;
    });
    try {
      Epoch::claim(directory_of(disk.root())).check();
      ++won;
    } catch (const TransientError&) {
      ++lost;
    }
    if (!both) break;  // it makes fewer calls
    EXPECT_EQ(steps(disk.root()), (std::vector<std::int64_t>{1, 2, 3}));
    EXPECT_EQ(newest(disk.root()), 3);
    if (HasFailure()) return;
  }
  std::printf("%d starts lost, %d won\n", lost, won);
  EXPECT_GT(lost, 10);
}

TEST_F(EpochDurability, a_save_that_ends_at_any_call_of_the_next_start_counts_or_is_an_error) {
  int saved = 0, refused = 0;
  for (std::size_t call = 0;; ++call) {
    SCOPED_TRACE(str("save at call ", call));
    const TemporaryDirectory directory(fast_directory());
    Disk disk(directory.path());
    const auto checkpoints = directory_of(disk.root());
    const auto epoch = Epoch::claim(checkpoints);
    Checkpointer checkpointer({checkpoints, &epoch}, state_, {.last = 1});
    const auto save_step = [&](std::int64_t step) {
      fill(step);
      checkpointer.save(step, Json(step));
    };
    save_step(1);
    save_step(2);
    bool both = false;
    std::int64_t announced = 2;
    Disk::interrupt_at(call, [&] {
      both = true;
      try {
        save_step(3);
        announced = 3;
      } catch (const Error&) {
      }
    });
    Epoch::claim(checkpoints);
    if (!both) break;  // it makes fewer calls
    ++(announced == 3 ? saved : refused);
    EXPECT_EQ(newest(disk.root()), announced);
    if (HasFailure()) return;
  }
  std::printf("%d saves counted, %d were refused\n", saved, refused);
  EXPECT_GT(saved, 10);
  EXPECT_GT(refused, 10);
}

}  // namespace lockstep::testing::epochs_test

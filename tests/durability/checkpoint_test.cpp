// Checkpoints on a disk that loses unsynced data, and with failing calls.
#include <cerrno>
#include <cstring>

#include "core/file.h"
#include "tests/durability/checkpoint_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::checkpoint_test {

using Action = Disk::Action;

constexpr char kRankFile[] = "rank-00000.safetensors";

TEST_F(Durability, the_newest_saved_checkpoint_survives_a_power_loss_at_any_call) {
  Disk disk(directory_.path());
  std::vector<std::pair<std::size_t, std::int64_t>> announced = {{0, -1}};
  // Step 2 is saved again, as after a resume from step 1. Only the newest two stay.
  for (const std::int64_t step : {1, 2, 3, 4, 2, 5}) {
    save(disk.root(), {{step, step == 2 ? 0 : 2}});
    announced.emplace_back(disk.calls().size(), step);
  }
  at_every_moment(disk, rest_ / "rest", [&](std::size_t calls, const fs::path& rest) {
    std::size_t next = 0;  // the first save that had not returned
    while (next < announced.size() && announced[next].first <= calls)
      ++next;
    const auto found = newest(rest);
    const auto before = announced[next - 1].second;
    const bool returned = announced[next - 1].first == calls || next == announced.size();
    EXPECT_TRUE(found == before || (!returned && found == announced[next].second))
        << "found " << found << " after " << before;
  });
}

TEST(LargeFiles, are_synced_during_the_write_and_a_failed_sync_is_an_error) {
  constexpr std::size_t kPiece = std::size_t{8} << 20, kPieces = 33;  // 264 MiB
  const TemporaryDirectory directory;
  Disk disk(directory.path());
  const std::vector<std::byte> piece(kPiece, std::byte{7});
  const auto write = [&] {
    WriteFile file(disk.root() / "large");
    for (std::size_t i = 0; i < kPieces; ++i)
      file.write(piece);
    file.commit();
  };
  write();
  const auto& calls = disk.calls();
  const auto is_sync = [](const Disk::Call& call) { return call.action == Action::sync; };
  const auto first = std::find_if(calls.begin(), calls.end(), is_sync);
  const auto writes_before = std::count_if(
      calls.begin(), first, [](const Disk::Call& call) { return call.action == Action::write; });
  EXPECT_EQ(writes_before, 32);  // 256 MiB
  disk.fail(calls.size() + static_cast<std::size_t>(first - calls.begin()), EIO);
  expect_refusal<StorageError>("durability/files", "a sync that fails", {"large: ", strerror(EIO)},
                               write);
  EXPECT_FALSE(is_sync(disk.calls().back()));
}

struct Fault {
  const char* name;
  int error;
  bool stays;
};

class Faults : public Durability, public ::testing::WithParamInterface<Fault> {};

TEST_P(Faults, if_any_call_fails_the_save_is_complete_or_an_error) {
  const auto& [name, error, stays] = GetParam();
  int faults = 0;
  for (const int ranks : {1, 2})
    for (std::size_t k = 0;; ++k) {
      SCOPED_TRACE(str("call ", k, " of ", ranks, " ranks"));
      const TemporaryDirectory directory(fast_directory());
      Disk disk(directory.path());
      save(disk.root(), {{1, 0}, {2, 0}}, ranks);
      const auto before = disk.calls().size();
      disk.fail(before + k, error, stays);
      bool said = false;
      try {
        save(disk.root(), {{3, 2}}, ranks);
      } catch (const Error& e) {
        said = true;
        EXPECT_EQ(e.exit_code(), 74) << e.what();
      }
      disk.mend();
      if (disk.calls().size() <= before + k) break;  // a save has fewer calls
      ++faults;
      const auto failed = before + k;
      for (const auto loss : Disk::kLosses) {
        write_rest(disk.rest(disk.calls().size(), loss), rest_ / "rest");
        const auto found = newest(rest_ / "rest");
        EXPECT_TRUE(found == 3 || (said && found == 2)) << found << (said ? ", said" : "");
      }
      EXPECT_FALSE(said && error == Disk::kShortWrite);
      save(disk.root(), {{4, 2}}, ranks);
      EXPECT_EQ(newest(disk.root()), 4);
      EXPECT_EQ(unfinished(disk.root()), std::vector<fs::path>{});
      if (HasFailure()) FAIL() << "the call was on " << disk.calls()[failed].path;
    }
  std::printf("%d calls failed\n", faults);
}

INSTANTIATE_TEST_SUITE_P(
    all, Faults,
    ::testing::Values(Fault{"EIO", EIO, false}, Fault{"EIO_from_then_on", EIO, true},
                      Fault{"ENOSPC", ENOSPC, false}, Fault{"ENOSPC_from_then_on", ENOSPC, true},
                      Fault{"EDQUOT", EDQUOT, false}, Fault{"EDQUOT_from_then_on", EDQUOT, true},
                      Fault{"EINTR", EINTR, false}, Fault{"EINTR_from_then_on", EINTR, true},
                      Fault{"short_write", Disk::kShortWrite, false},
                      Fault{"short_writes_from_then_on", Disk::kShortWrite, true}),
    [](const auto& p) { return p.param.name; });

// A checkpoint takes 8 of its 64 pages, or fewer.
class SmallDisks : public Durability {
 protected:
  SmallDisks() : Durability({64, 64}) {}
};

TEST_F(SmallDisks, of_any_size_keep_saved_checkpoints_and_report_that_they_are_full) {
  int saved = 0, said = 0;
  for (int pages = 1; pages <= 64; ++pages) {
    SCOPED_TRACE(str(pages, " pages"));
    SmallDisk disk(std::int64_t{4096} * pages);
    if (!disk.mounted()) GTEST_SKIP() << "only root may mount a small disk";
    std::vector<std::int64_t> steps;
    for (std::int64_t step = 1; step <= 7; ++step) {
      try {
        save(disk.path(), {{step, 4}}, 2);
        ++saved;
        steps.push_back(step);
        if (steps.size() > 4) steps.erase(steps.begin());
      } catch (const StorageError& error) {
        ++said;
        expect_contains(error.what(), strerror(ENOSPC));
        EXPECT_EQ(unfinished(disk.path()), std::vector<fs::path>{});
      }
      EXPECT_EQ(checkpoint_steps(directory_of(disk.path())), steps);
      EXPECT_EQ(newest(disk.path()), steps.empty() ? -1 : steps.back());
    }
    disk.resize(std::int64_t{1} << 20);
    save(disk.path(), {{8, 4}}, 2);
    EXPECT_EQ(newest(disk.path()), 8);
    if (HasFailure()) return;
  }
  std::printf("64 disks: saved %d times, full %d times\n", saved, said);
}

TEST_F(Durability, an_older_checkpoint_is_deleted_only_after_the_newest_was_read_from_disk) {
  Disk disk(directory_.path());
  save(disk.root(), {{1, 1}, {2, 1}});
  const auto& calls = disk.calls();
  const auto index = [&](Action action, const std::string& path) {
    for (std::size_t i = calls.size(); i-- > 0;)
      if (calls[i].action == action && calls[i].path == path) return i;
    ADD_FAILURE() << "no such call on " << path;
    return calls.size();
  };
  const auto saved = index(Action::rename, "new/run/step-00000002.tmp");
  const auto gone = index(Action::rename, "new/run/step-00000001");
  for (const std::string name : {"manifest.json", kRankFile}) {
    const auto path = "new/run/step-00000002/" + name;
    const auto dropped = index(Action::drop_cache, path);
    EXPECT_LT(saved, dropped) << name;
    std::int64_t read = 0;
    for (std::size_t i = dropped; i < gone; ++i)
      if (calls[i].action == Action::read && calls[i].path == path) read += calls[i].count;
    EXPECT_GE(read, static_cast<std::int64_t>(fs::file_size(disk.root() / path))) << name;
  }
}

}  // namespace lockstep::testing::checkpoint_test

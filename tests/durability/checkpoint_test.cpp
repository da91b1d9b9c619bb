// Checkpoints against a disk that loses what was not synced, and calls that fail.
#include <cerrno>
#include <cstring>
#include <optional>

#include "checkpoint/checkpointer.h"
#include "dist/thread_world.h"
#include "tests/durability/disk.h"
#include "tests/files.h"
#include "tests/testing.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using Action = Disk::Action;

constexpr char kRankFile[] = "rank-00000.safetensors";

class Durability : public ::testing::Test {
 protected:
  Durability() {
    state_.push_back(whole_slice("w", bench_.poisoned({5, 7}, DType::fp32)));
    state_.push_back(whole_slice("w/adam_m", bench_.poisoned({5, 7}, DType::bf16)));
  }

  void fill(std::int64_t step) {
    for (const auto& slice : state_)
      for (std::int64_t i = 0; i < slice.local.bytes(); ++i)
        slice.local.data[i] = static_cast<std::byte>(
            philox(7, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(i))[0]);
  }
  void save(const Disk& disk, std::int64_t step, int keep_last) {
    fill(step);
    run_thread_ranks(ranks_, [&](World& world) {
      Checkpointer(disk.root() / "new/run", rows_of(world.rank()), {.last = keep_last}, &world)
          .save(step, Json(step));
    });
    announced_.emplace_back(disk.calls().size(), step);
  }
  void save_some(const Disk& disk) {
    // Step 2 comes again: the run went on from step 1. Only the newest two stay.
    for (const std::int64_t step : {1, 2, 3, 4, 2, 5})
      save(disk, step, step == 2 ? 0 : 2);
  }
  // Each rank owns some rows.
  std::vector<StateSlice> rows_of(int rank) const {
    std::vector<StateSlice> slices;
    for (const auto& [name, whole, split, piece, local, owned] : state_) {
      const auto step = (whole[0] + ranks_ - 1) / ranks_;
      const auto rows = local.rows(step * rank, std::min(step, whole[0] - step * rank));
      slices.push_back({name,
                        whole,
                        {0, ranks_, step},
                        {rank, 0, rows.elements()},
                        rows.view({rows.elements()})});
    }
    return slices;
  }
  // The newest step, or -1; fails where one is not whole, or the newest not as it was saved.
  std::int64_t newest(const fs::path& root) {
    for (const auto step : checkpoint_steps(root / "new/run"))
      EXPECT_NO_THROW(verify_checkpoint(checkpoint_path(root / "new/run", step), Depth::contents));
    const auto latest = latest_checkpoint(root / "new/run");
    if (!latest) return -1;
    std::vector<std::string> loaded;
    EXPECT_EQ(Checkpointer(root / "new/run", state_).load(*latest).as_integer(), *latest);
    for (const auto& slice : state_)
      loaded.push_back(bytes_of(slice));
    fill(*latest);
    for (std::size_t i = 0; i < state_.size(); ++i)
      EXPECT_EQ(loaded[i], bytes_of(state_[i])) << state_[i].name << " of step " << *latest;
    return *latest;
  }
  // It is the newest announced, or the one that was being saved.
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
  static std::string bytes_of(const StateSlice& slice) {
    return {reinterpret_cast<const char*>(slice.local.data),
            static_cast<std::size_t>(slice.local.bytes())};
  }
  static std::vector<fs::path> unfinished(const fs::path& root) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(root))
      if (entry.path().string().find(".tmp") != std::string::npos) found.push_back(entry.path());
    return found;
  }

  TemporaryDirectory directory_{fast_directory()}, rest_{fast_directory()};
  Bench bench_;
  std::vector<StateSlice> state_;
  int ranks_ = 1;
  std::vector<std::pair<std::size_t, std::int64_t>> announced_;  // the calls before, and the step
};

TEST_F(Durability, whenever_the_power_goes_off_the_newest_announced_checkpoint_is_there) {
  Disk disk(directory_.path());
  save_some(disk);
  at_every_moment(disk, rest_ / "rest", [&](std::size_t calls, const fs::path& rest) {
    expect_announced(calls, newest(rest));
  });
}

// With tensors of several blocks.
class Reordering : public Durability {
 protected:
  Reordering() { state_.push_back(whole_slice("large", bench_.poisoned({10, 500}, DType::fp32))); }
  // Behind calls that something is to be synced of.
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
  void lose_some(int times) {
    constexpr std::uint64_t kSeed = 20261122;
    for (ranks_ = 1; ranks_ <= 2; ++ranks_) {
      const TemporaryDirectory directory(fast_directory());
      Disk disk(directory.path());
      announced_.clear();
      save_some(disk);
      const auto all = moments(disk);
      for (int i = 0; i < times / 2; ++i) {
        std::mt19937_64 random(kSeed + static_cast<std::uint64_t>(i));
        const auto calls = all[random() % all.size()];
        SCOPED_TRACE(str("state ", i, " of ", ranks_, " ranks, behind ", calls, " of ",
                         disk.calls().size(), " calls, the last on ",
                         disk.calls()[calls - 1].path));
        write_rest(disk.rest(calls, random), rest_ / "rest");
        expect_announced(calls, newest(rest_ / "rest"));
        if (HasFailure()) return;
      }
      std::printf("%d ranks: %d states at %zu moments\n", ranks_, times / 2, all.size());
    }
  }
};

TEST_F(Reordering, whatever_of_the_unsynced_the_disk_kept_the_newest_announced_is_there) {
  lose_some(2000);
}

TEST_F(Reordering, full_whatever_of_the_unsynced_the_disk_kept_the_newest_announced_is_there) {
  lose_some(50'000);
}

TEST_F(Durability, whichever_call_fails_a_save_says_so_or_has_saved) {
  for (const int error : {EIO, ENOSPC, EINTR})
    for (std::size_t k = 0;; ++k) {
      SCOPED_TRACE(str("call ", k, " fails: ", std::strerror(error)));
      const TemporaryDirectory directory(fast_directory());
      Disk disk(directory.path());
      save(disk, 1, 0);
      save(disk, 2, 0);
      const auto before = disk.calls().size();
      disk.fail(before + k, error);
      bool said = false;
      try {
        save(disk, 3, 2);
      } catch (const Error&) {
        said = true;
      }
      if (disk.calls().size() <= before + k) break;  // it needs no more calls
      const auto failed = before + k;
      for (const auto loss : Disk::kLosses) {
        write_rest(disk.rest(disk.calls().size(), loss), rest_ / "rest");
        const auto found = newest(rest_ / "rest");
        EXPECT_TRUE(found == 3 || (said && found == 2)) << found << (said ? ", said" : "");
      }
      save(disk, 4, 2);
      EXPECT_EQ(newest(disk.root()), 4);
      EXPECT_EQ(unfinished(disk.root()), std::vector<fs::path>{});
      if (HasFailure()) FAIL() << "the call was on " << disk.calls()[failed].path;
    }
}

TEST_F(Durability, an_older_checkpoint_goes_only_after_the_newest_was_read_from_the_disk) {
  Disk disk(directory_.path());
  save(disk, 1, 1);
  save(disk, 2, 1);
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

}  // namespace
}  // namespace lockstep::testing

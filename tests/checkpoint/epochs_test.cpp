// Epochs: claims, what counts, what a stale process may do, and the records.
#include <cstdlib>
#include <cstring>
#include <latch>
#include <set>
#include <sys/wait.h>
#include <thread>

#include "checkpoint/checkpoint_copier.h"
#include "checkpoint/checkpointer.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/system/machine.h"
#include "tests/captured.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"
#include "tests/wording.h"

namespace lockstep::testing::epochs_test {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

class EpochsTest : public ::testing::Test {
 protected:
  EpochsTest() {
    state_.push_back(whole_slice("w", bench_.poisoned({3}, DType::fp32)));
    fs::create_directory(path());
  }
  fs::path path() const { return directory_ / "checkpoints"; }
  fs::path path(std::int64_t step) const { return checkpoint_path(path(), step); }
  fs::path record(const std::string& number) const {
    return path() / "epochs" / number / "about.json";
  }
  void save(std::int64_t step, const Epoch* epoch, int keep_last = 0) {
    Checkpointer({path(), epoch}, state_, {.last = keep_last}).save(step, Json(step));
  }
  Steps steps() const { return checkpoint_steps(path()); }
  // Names in checkpoints/, without epochs/.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : directory_entries(path()))
      if (entry.filename() != "epochs") names.push_back(entry.filename().string());
    return names;
  }

  TemporaryDirectory directory_{fast_directory()};
  Bench bench_;
  std::vector<StateSlice> state_;
};

TEST_F(EpochsTest, all_checkpoints_of_a_directory_without_epochs_count_before_and_after_a_claim) {
  save(1, nullptr);
  save(2, nullptr);
  EXPECT_EQ(read_manifest(path(2)).epoch, 0);
  fs::create_directories(path() / "step-00000003.tmp");
  EXPECT_EQ(steps(), (Steps{1, 2}));
  const auto epoch = Epoch::claim(path());
  EXPECT_EQ(epoch.number(), 1);
  EXPECT_EQ(steps(), (Steps{1, 2}));
  EXPECT_EQ(names(), (std::vector<std::string>{"step-00000001", "step-00000002"}));
  save(3, &epoch);
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
  EXPECT_EQ(read_manifest(path(3)).epoch, 1);
  expect_contains(slurp(path(3) / "manifest.json"), "\"version\": 2,");
  // A fork has no epochs.
  fs::create_directory(directory_ / "fork");
  link_checkpoint(path(3), directory_ / "fork");
  EXPECT_EQ(checkpoint_steps(directory_ / "fork"), Steps{3});
  EXPECT_TRUE(is_copy(path(3), directory_ / "fork/step-00000003"));
}

TEST_F(EpochsTest, a_checkpoint_that_arrives_after_the_next_claim_does_not_count) {
  const auto stale = Epoch::claim(path());
  save(1, &stale);
  save(2, &stale);
  fs::rename(path(2), directory_ / "late");
  const auto epoch = Epoch::claim(path());
  // A rename that the stale process began on a remote file system takes effect now.
  fs::rename(directory_ / "late", path(2));
  EXPECT_EQ(steps(), Steps{1});
  save(2, &epoch);
  EXPECT_EQ(steps(), (Steps{1, 2}));
  EXPECT_EQ(names(),
            (std::vector<std::string>{"step-00000001", "step-00000002", "step-00000002.fenced-1"}));
  EXPECT_EQ(read_manifest(path(2)).epoch, 2);
  // The same in the time between two starts.
  fs::rename(path() / "step-00000002.fenced-1", path(3));
  fs::copy(path(1), directory_ / "old", fs::copy_options::recursive);
  const auto said = stderr_of([&] { Epoch::claim(path()); });
  expect_contains(said, "step-00000003.fenced-1");
  EXPECT_EQ(steps(), (Steps{1, 2}));
  // Another save of a step in the list does not count either.
  fs::remove_all(path(2));
  fs::copy(directory_ / "old", path(2), fs::copy_options::recursive);
  EXPECT_EQ(steps(), Steps{1});
}

TEST_F(EpochsTest, a_stale_process_reports_who_has_taken_over_and_changes_nothing) {
  const auto stale = Epoch::claim(path());
  save(1, &stale);
  save(2, &stale);
  UnfinishedCheckpoint unfinished({path(), &stale}, 3);
  const auto manifest = slurp(path(2) / "manifest.json");
  const auto epoch = Epoch::claim(path());
  const auto before = names();
  const auto refuses = [&](const auto& act) {
    auto text = message_of<TransientError>(act);
    const auto who = str("host ", host_name(), " (pid ", getpid(), ")");
    expect_contains(text, who);
    text.replace(text.find(who), who.size(), "HOST");
    expect_wording("checkpoint/epochs", "taken over", text);
    EXPECT_EQ(names(), before);
  };
  refuses([&] { stale.check(); });
  refuses([&] { save(4, &stale); });
  refuses([&] { unfinished.commit(manifest); });
  refuses([&] { remove_checkpoint(path(1), &stale); });
  refuses([&] { set_aside(path(1), Aside::replaced, &stale); });
  refuses([&] { stale.purge(); });
  epoch.check();
  EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST_F(EpochsTest, deleted_checkpoints_are_purged_when_the_next_save_begins_or_taken_back) {
  const auto first = Epoch::claim(path());
  for (const std::int64_t step : {1, 2, 3})
    save(step, &first, 1);
  EXPECT_EQ(steps(), Steps{3});
  EXPECT_EQ(named_steps(first.deleted()), Steps{2});
  const auto second = Epoch::claim(path());
  EXPECT_EQ(steps(), (Steps{2, 3}));
  verify_checkpoint(path(2), Depth::contents);
  save(4, &second, 1);
  EXPECT_EQ(steps(), Steps{4});
  EXPECT_EQ(named_steps(second.deleted()), (Steps{2, 3}));
  second.purge();
  EXPECT_EQ(directory_entries(second.deleted()), std::vector<fs::path>{});
  // A newer save of the step stays, and the deleted one goes.
  save(5, &second, 1);
  fs::copy(path(5), second.deleted() / "step-00000005", fs::copy_options::recursive);
  spit(second.deleted() / "step-00000005/kept", "");
  Epoch::claim(path());
  EXPECT_EQ(steps(), (Steps{4, 5}));
  EXPECT_FALSE(fs::exists(path(5) / "kept"));
}

TEST_F(EpochsTest, copies_of_checkpoints_of_other_epochs_count) {
  const auto archive = directory_ / "archive";
  fs::create_directory(archive);
  const auto first = Epoch::claim(path());
  save(1, &first);
  run_thread_ranks(
      1, [&](World& world) { CheckpointCopier(world, path(), archive, {}).copy(1, {}, {}); });
  fs::remove_all(path(1));
  Epoch::claim(path());
  const auto third = Epoch::claim(path());
  EXPECT_EQ(steps(), Steps{});
  run_thread_ranks(1, [&](World& world) {
    CheckpointCopier(world, archive, {path(), &third}, {}).copy(1, {}, {});
  });
  EXPECT_EQ(steps(), Steps{1});
  EXPECT_TRUE(is_copy(path(1), archive / "step-00000001"));
  Epoch::claim(path());
  EXPECT_EQ(steps(), Steps{1});
}

TEST_F(EpochsTest, a_damaged_checkpoint_counts_so_that_a_resume_reports_it) {
  const auto first = Epoch::claim(path());
  save(1, &first);
  save(2, &first);
  spit(path(2) / "manifest.json", "{");
  EXPECT_EQ(steps(), (Steps{1, 2}));
  Epoch::claim(path());
  EXPECT_EQ(steps(), (Steps{1, 2}));
  EXPECT_EQ(latest_checkpoint(path()), 1);
}

// Each of 8 claims may take over the one before, but only the last one holds an epoch at the end.
void expect_one_holder(const fs::path& checkpoints, int holders) {
  EXPECT_EQ(holders, 1);
  EXPECT_EQ(checkpoint_steps(checkpoints), (Steps{1, 2}));
  for (const auto& entry : directory_entries(checkpoints / "epochs"))
    EXPECT_EQ(entry.extension(), "") << entry;
}

TEST_F(EpochsTest, of_eight_threads_that_claim_at_the_same_time_one_holds_the_epoch) {
  constexpr int kStarts = 8, kTimes = 10;
  save(1, nullptr);
  save(2, nullptr);
  for (int time = 0; time < kTimes && !HasFailure(); ++time) {
    std::array<std::optional<Epoch>, kStarts> epochs;
    std::latch begin(kStarts);
    std::vector<std::thread> threads;
    for (auto& epoch : epochs)
      threads.emplace_back([&] {
        begin.arrive_and_wait();
        try {
          epoch = Epoch::claim(path());
        } catch (const TransientError&) {
        }
      });
    for (auto& thread : threads)
      thread.join();
    int holders = 0;
    std::set<std::int64_t> numbers;
    for (const auto& epoch : epochs) {
      if (!epoch) continue;
      EXPECT_TRUE(numbers.insert(epoch->number()).second) << epoch->number();
      try {
        epoch->check();
        ++holders;
      } catch (const TransientError&) {
      }
    }
    expect_one_holder(path(), holders);
  }
}

TEST_F(EpochsTest, of_eight_processes_that_claim_at_the_same_time_one_holds_the_epoch) {
  constexpr int kStarts = 8;
  save(1, nullptr);
  save(2, nullptr);
  std::array<int, 2> begin{};
  ASSERT_EQ(pipe(begin.data()), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kStarts; ++i) {
    const auto child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(begin[1]);
      char byte = 0;
      [[maybe_unused]] const auto ended = read(begin[0], &byte, 1);  // until the test closes it
      try {
        _exit(static_cast<int>(Epoch::claim(path()).number()));
      } catch (const TransientError&) {
        _exit(0);
      } catch (...) {
        _exit(100);
      }
    }
    children.push_back(child);
  }
  close(begin[0]);
  close(begin[1]);
  std::set<int> numbers;
  for (const auto child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    const int number = WEXITSTATUS(status);
    EXPECT_NE(number, 100);
    if (number > 0) {
      EXPECT_TRUE(numbers.insert(number).second) << number;
    }
  }
  EXPECT_EQ(EpochRecord::newest(path())->number, *numbers.rbegin());
  expect_one_holder(path(), 1);
}

TEST_F(EpochsTest, a_damaged_or_newer_record_is_an_error_with_the_remedy) {
  const auto epoch = Epoch::claim(path());
  save(1, &epoch);
  const auto good = slurp(record("00000001"));
  const auto refuses = [&](const char* name, const std::string& text, const char* pin) {
    spit(record("00000001"), text);
    expect_refusal<DataError>("checkpoint/epochs", name, {"about.json: ", pin}, [&] { steps(); });
    expect_contains(message_of<DataError>([&] { Epoch::claim(path()); }), pin);
  };
  const auto changed = [&](const char* from, const char* to, bool hashed) {
    auto text = good;
    text.replace(text.find(from), std::strlen(from), to);
    if (!hashed) return text;
    const auto end = text.rfind(",\n  \"xxh3_128\"");
    const auto body = text.substr(0, end);
    return body + ",\n  \"xxh3_128\": \"" + hash_hex(body + "\n}") + "\"\n}\n";
  };
  refuses("newer", changed("\"version\": 1", "\"version\": 2", true), "version 2");
  refuses("changed", changed("\"pid\": ", "\"pid\": 1", false), "hash");
  refuses("other format", changed("lockstep epoch", "epoch", true), "format");
  spit(record("00000001"), good.substr(0, good.size() / 2));
  expect_contains(message_of<DataError>([&] { steps(); }), "damaged");
  refuses("empty", "", "damaged");
  fs::remove(record("00000001"));
  expect_contains(message_of<DataError>([&] { steps(); }), "about.json");
  // The remedy.
  fs::remove_all(path() / "epochs");
  EXPECT_EQ(steps(), Steps{1});
  EXPECT_EQ(Epoch::claim(path()).number(), 1);
}

TEST_F(EpochsTest, records_of_old_epochs_are_removed) {
  for (int i = 0; i < 5; ++i)
    Epoch::claim(path());
  std::vector<std::string> left;
  for (const auto& entry : directory_entries(path() / "epochs"))
    left.push_back(entry.filename().string());
  EXPECT_EQ(left, (std::vector<std::string>{"00000004", "00000005"}));
}

}  // namespace lockstep::testing::epochs_test

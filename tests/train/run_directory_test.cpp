#include "train/run_directory.h"

#include <sys/wait.h>

#include "core/system/machine.h"
#include "tests/wording.h"

namespace lockstep::testing::run_directory_test {

namespace fs = std::filesystem;

constexpr const char* kReader = "train/run_directory";

// `act` fails because this process holds the directory.
template <class Act>
void expect_taken(const fs::path& path, const Act& act) {
  auto text = message_of<TransientError>(act);
  const auto holder = std::pair(str("pid ", getpid()), host_name());
  for (const auto& pin : {path.string(), holder.first, holder.second})
    expect_contains(text, pin);
  text.replace(text.find(holder.first), holder.first.size(), "pid PID");
  text.replace(text.rfind(holder.second), holder.second.size(), "HOST");
  expect_wording(kReader, "taken", text);
}

TEST(RunDirectory, is_created_with_its_parents_and_names_its_files) {
  const TemporaryDirectory temporary;
  const RunDirectory run(temporary / "a/b");
  EXPECT_TRUE(fs::is_directory(temporary / "a/b/checkpoints"));
  EXPECT_EQ(run.config(), temporary / "a/b/config.toml");
  EXPECT_EQ(run.metrics(), temporary / "a/b/metrics.jsonl");
  EXPECT_EQ(run.numerics(), temporary / "a/b/numerics.json");
}

TEST(RunDirectory, has_the_same_name_for_every_spelling_of_its_path) {
  for (const char* path : {"a/b", "/a/b/", "b", "./b/.", "a/c/../b//"})
    EXPECT_EQ(run_name(path), "b") << path;
  EXPECT_EQ(run_name("."), fs::current_path().filename().string());
}

TEST(RunDirectory, is_removed_if_the_run_created_it_and_saved_nothing) {
  const TemporaryDirectory temporary;
  const auto path = temporary / "run";
  {
    const RunDirectory refused(path);
    spit(path / "of_my_own.prom", "");  // log.prometheus_file
  }
  EXPECT_FALSE(fs::exists(path));
  {
    const RunDirectory saved(path);
    spit(saved.checkpoints() / "file", "");
  }
  EXPECT_TRUE(fs::exists(path / "checkpoints/file"));
  fs::remove(path / "checkpoints/file");
  { const RunDirectory there_before(path); }
  EXPECT_TRUE(fs::exists(path));
}

TEST(RunDirectory, is_not_removed_by_a_stale_process_that_saved_nothing) {
  const TemporaryDirectory temporary;
  const auto path = temporary / "run";
  {
    RunDirectory alone(path);
    alone.claim_epoch();
  }
  EXPECT_FALSE(fs::exists(path));
  {
    RunDirectory stale(path);
    stale.claim_epoch();
    fs::remove(path / "lock");  // as if the file server had lost it
    RunDirectory run(path);
    run.claim_epoch();
    run.keep();
    EXPECT_NO_THROW(run.check());
    expect_contains(message_of<TransientError>([&] { stale.check(); }), "epoch 2");
  }
  EXPECT_TRUE(fs::exists(path / "checkpoints/epochs/00000002/work"));
}

TEST(RunDirectory, has_one_holder_at_a_time) {
  const TemporaryDirectory temporary;
  const auto path = temporary / "run";
  {
    const RunDirectory run(path);
    expect_taken(path, [&] { const RunDirectory again(path); });
  }
  const RunDirectory free_again(path);
}

// The process owns the lock: its death by any cause releases it.
TEST(RunDirectory, is_free_after_its_holder_is_killed) {
  const TemporaryDirectory temporary;
  const auto path = temporary / "run";
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunDirectory run(path);
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(1);
  }
  close(ready[1]);  // so that a child that ends early is the end of the file
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THROW(const RunDirectory taken(path), TransientError);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  const RunDirectory run(path);
}

// A run that continued in such a directory would train without a lock.
TEST(RunDirectory, if_removed_moved_or_replaced_is_an_error_on_every_rank) {
  const TemporaryDirectory temporary;
  const auto path = temporary / "run", moved = temporary / "moved";
  const std::string kMoved = "moved";
  const auto after = [&](const std::string& what, const auto& change) {
    fs::remove_all(path);
    fs::remove_all(moved);
    const RunDirectory first(path);
    const RunDirectory second(path, /*takes_lock=*/false);
    EXPECT_NO_THROW(first.check());
    EXPECT_NO_THROW(second.check());
    change();
    const auto said = message_of<DataError>([&] { first.check(); });
    EXPECT_EQ(message_of<DataError>([&] { second.check(); }), said);
    expect_contains(said, path.string() + ": ");
    if (what == kMoved) expect_contains(said, (moved / "lock").string());
    expect_wording(kReader, what, said);
  };
  after("removed", [&] { fs::remove_all(path); });
  after(kMoved, [&] { fs::rename(path, moved); });
  after("without its lock", [&] { fs::remove(path / "lock"); });
  after("without its lock on NFS", [&] { fs::rename(path / "lock", path / ".nfs0001"); });
  after("replaced by a backup", [&] {
    fs::rename(path, moved);
    fs::copy(moved, path, fs::copy_options::recursive);
  });
}

TEST(RunDirectory, is_busy_if_another_process_trains_in_it_instead) {
  const TemporaryDirectory temporary;
  const auto path = temporary / "run";
  const RunDirectory run(path);
  fs::rename(path, temporary / "moved");
  const RunDirectory other(path);
  expect_taken(path, [&] { run.check(); });
  EXPECT_NO_THROW(other.check());
}

TEST(RunDirectory, if_unwritable_is_an_error_that_names_it) {
  const TemporaryDirectory temporary;
  const auto path = temporary / "run";
  RunDirectory(path).keep();
  fs::remove(path / "lock");
  fs::permissions(temporary.path(), fs::perms(0755));
  fs::permissions(path, fs::perms(0555));
  const AsNobody nobody;
  expect_contains(message_of<DataError>([&] { const RunDirectory run(path); }), path.string());
}

}  // namespace lockstep::testing::run_directory_test

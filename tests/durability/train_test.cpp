// A run on a disk that loses unsynced data.
#include <cerrno>
#include <cstring>
#include <list>
#include <set>
#include <sstream>
#include <sys/mount.h>

#include "checkpoint/checkpointer.h"
#include "core/json.h"
#include "tests/captured.h"
#include "tests/data/shards.h"
#include "tests/durability/disk.h"
#include "tests/launch/plan/cluster_rig.h"
#include "train/run/trainer.h"

namespace lockstep::testing::train_test {

namespace fs = std::filesystem;

Config tiny(const fs::path& tokens) {
  Config c = small_run(1, 1);
  c.model.width = c.model.mlp_width = 8;
  c.model.heads = c.model.kv_heads = 2;
  c.model.head_size = 4;
  c.model.vocabulary = 257;
  c.model.max_positions = c.train.sequence_length = 8;
  c.train.steps = 4;
  c.train.batch_tokens = 16;
  c.data.train = {tokens.string()};
  c.checkpoint.every_steps = 1;
  return c;
}

// The number of whole lines of metrics.jsonl.
std::int64_t lines(const fs::path& run) {
  const auto text = slurp(run / "metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

// The number of whole records of the event file, without its first two.
std::int64_t events(const fs::path& run) {
  for (const auto& entry : fs::directory_iterator(run)) {
    if (entry.path().filename().string().find("tfevents") == std::string::npos) continue;
    const auto bytes = slurp(entry.path());
    std::int64_t records = -2;
    for (std::size_t at = 0; at + 8 <= bytes.size(); ++records) {
      std::uint64_t length = 0;
      std::memcpy(&length, bytes.data() + at, 8);
      if (length > bytes.size() || at + 16 + length > bytes.size()) break;
      at += 16 + length;
    }
    return records;
  }
  return 0;
}

int train_in(const fs::path& root, const Config& config, const MakeStepObserver& observe = {}) {
  const TrainOptions options{.config = config,
                             .resolved_config = "# resolved",
                             .settings = Json::Object{},
                             .run = root / "new/runs/run",
                             .device = {},
                             .make_observer = observe,
                             .extend = true};
  LoneWorld alone;
  return train(options, {.world = alone});
}

TEST(RunDurability, after_a_power_loss_the_logs_reach_the_newest_checkpoint) {
  const TemporaryDirectory data, directory(fast_directory()), rest(fast_directory());
  spit(data / "tokens.bin", gpt2_shard(random_tokens(400, 256)));
  Disk disk(directory.path());
  ASSERT_EQ(train_in(disk.root(), tiny(data / "tokens.bin")), 0);
  at_every_moment(disk, rest / "rest", [&](std::size_t calls, const fs::path& root) {
    const auto run = root / "new/runs/run";
    const auto latest = latest_checkpoint(run / "checkpoints");
    EXPECT_TRUE(latest == 4 || calls < disk.calls().size());
    if (!latest) return;
    EXPECT_GE(lines(run), *latest);
    EXPECT_GE(events(run), *latest);
    EXPECT_EQ(slurp(run / "config.toml"), "# resolved");
  });
}

// True if the log reports the step as saved, or (with `warns`) as not saved.
bool says(const std::string& log, std::int64_t step, bool warns) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("warning: ") == warns && line.find(str("step ", step, " ")) != line.npos)
      return true;
  return false;
}

TEST(RunDurability, a_run_on_a_small_disk_continues_or_aborts_and_completes_on_a_larger_one) {
  const TemporaryDirectory data, whole(fast_directory());
  spit(data / "tokens.bin", gpt2_shard(random_tokens(400, 256)));
  auto config = tiny(data / "tokens.bin");
  config.log.tensorboard = false;
  config.checkpoint.keep_last = 0;  // all
  auto longer = config;
  longer.train.steps = 6;
  const auto state = [](const fs::path& root) {
    return slurp(checkpoint_path(root / "new/runs/run/checkpoints", 6) / "rank-00000.safetensors");
  };
  ASSERT_EQ(train_in(whole.path(), longer), 0);
  int ended = 0;
  for (int pages = 8; pages <= 128; pages += 17) {
    SCOPED_TRACE(str(pages, " pages"));
    SmallDisk disk(std::int64_t{4096} * pages);
    if (!disk.mounted()) GTEST_SKIP() << "only root may mount a small disk";
    std::string error;
    const auto said = stderr_of([&] {
      try {
        EXPECT_EQ(train_in(disk.path(), config), 0);
        ++ended;
      } catch (const StorageError& e) {
        error = e.what();
        expect_contains(error, strerror(ENOSPC));
      }
    });
    const auto checkpoints = disk.path() / "new/runs/run/checkpoints";
    std::vector<std::int64_t> steps;
    for (const std::int64_t step : {1, 2, 3, 4})
      if (says(said, step, false)) steps.push_back(step);
    if (error.find("/saving/") != std::string::npos)  // the save of the last step failed
      for (const std::int64_t step : {1, 2, 3})
        if (std::find(steps.begin(), steps.end(), step) == steps.end()) {
          EXPECT_TRUE(says(said, step, true)) << said;
        }
    EXPECT_EQ(checkpoint_steps(checkpoints), steps) << said;
    for (const auto step : steps)
      EXPECT_NO_THROW(verify_checkpoint(checkpoint_path(checkpoints, step), Depth::contents));
    disk.resize(std::int64_t{1} << 20);
    ASSERT_EQ(train_in(disk.path(), longer), 0);
    EXPECT_EQ(state(disk.path()), state(whole.path()));
    if (::testing::Test::HasFailure()) return;
  }
  std::printf("8 disks: %d large enough\n", ended);
}

// While it lives, a directory cannot be created anew.
class Blocked {
 public:
  explicit Blocked(std::string path) : path_(std::move(path)) {
    fs::create_directories(path_);
    is_blocked_ = mount("none", path_.c_str(), "tmpfs", 0, "size=1m") == 0;
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;
  ~Blocked() {
    if (is_blocked_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool is_blocked() const { return is_blocked_; }

 private:
  std::string path_;
  bool is_blocked_ = false;
};

// Blocks the saves of some steps of a new run.
class SaveBlocker final : public StepObserver {
 public:
  SaveBlocker(fs::path saving, std::set<std::int64_t> steps, std::list<Blocked>& blocked)
      : saving_(std::move(saving)), steps_(std::move(steps)), blocked_(blocked) {}
  void open() override {}
  void fill_in(StepReport&) override {}
  void observe(StepReport& report, bool) override {
    if (steps_.contains(report.step))
      blocked_.emplace_back(checkpoint_path(saving_, report.step).string());
  }
  void meter_changed() override {}
  void end() override {}

 private:
  fs::path saving_;
  std::set<std::int64_t> steps_;
  std::list<Blocked>& blocked_;
};

TEST(RunDurability, consecutive_failed_saves_end_the_run_and_a_save_resets_their_number) {
  const TemporaryDirectory data;
  spit(data / "tokens.bin", gpt2_shard(random_tokens(400, 256)));
  auto config = tiny(data / "tokens.bin");
  config.log.tensorboard = false;
  config.checkpoint.most_failed = 2;
  config.train.steps = 6;
  const auto train_without = [&](const std::set<std::int64_t>& steps) {
    const TemporaryDirectory root(fast_directory());
    const auto run = root / "new/runs/run";
    const auto saving = run / "checkpoints/epochs/00000001/work/saving";
    std::list<Blocked> blocked;
    std::string error;
    try {
      EXPECT_EQ(train_in(root.path(), config,
                         [&](lockstep::Run&) {
                           return std::make_unique<SaveBlocker>(saving, steps, blocked);
                         }),
                0);
    } catch (const StorageError& e) {
      error = e.what();
    }
    for (const auto& one : blocked)
      if (!one.is_blocked()) return std::string("no mounts");
    return str(error, "\n", slurp(run / "metrics.prom"));
  };
  const auto separate = train_without({1, 3, 5});
  if (separate == "no mounts") GTEST_SKIP() << "only root may mount";
  EXPECT_TRUE(separate.starts_with("\n")) << separate;
  expect_contains(separate, "lockstep_checkpoint_failures_total{run=\"run\"} 3\n");
  expect_contains(separate, "lockstep_checkpoint_step{run=\"run\"} 6\n");
  const auto in_a_row = train_without({3, 4});
  EXPECT_TRUE(in_a_row.starts_with("step 4 is not saved: ")) << in_a_row;
  expect_contains(in_a_row, "checkpoint.most_failed");
  expect_contains(in_a_row, "resume from step 2\n");
  expect_contains(in_a_row, "lockstep_checkpoint_failures_total{run=\"run\"} 2\n");
  expect_contains(in_a_row, "lockstep_checkpoint_step{run=\"run\"} 2\n");
}

}  // namespace lockstep::testing::train_test

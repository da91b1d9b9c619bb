// A run against a disk that loses what was not synced.
#include <cstring>

#include "checkpoint/checkpointer.h"
#include "core/json.h"
#include "model/families.h"
#include "tests/data/shards.h"
#include "tests/durability/disk.h"
#include "train/trainer.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

Config tiny(const fs::path& tokens) {
  Config c;
  c.model = family_defaults(Family::llama3);
  c.model.layers = 1;
  c.model.width = c.model.mlp_width = 8;
  c.model.heads = c.model.kv_heads = 2;
  c.model.head_size = 4;
  c.model.vocabulary = 257;
  c.model.max_positions = 8;
  c.train.steps = 4;
  c.train.batch_tokens = 16;
  c.train.sequence_length = 8;
  c.train.micro_batch = 2;
  c.train.threads = 1;
  c.data.train = {tokens.string()};
  c.checkpoint.every_steps = 1;
  return c;
}

// Whole lines of metrics.jsonl.
std::int64_t lines(const fs::path& run) {
  const auto text = slurp(run / "metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

// Whole records of the event file, without the two that begin it.
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

TEST(RunDurability, whenever_the_power_goes_off_the_logs_reach_as_far_as_the_newest_checkpoint) {
  const TemporaryDirectory data, directory(fast_directory()), rest(fast_directory());
  spit(data / "tokens.bin", gpt2_shard(random_tokens(400, 256)));
  Disk disk(directory.path());
  const TrainOptions options{.config = tiny(data / "tokens.bin"),
                             .resolved_config = "# resolved",
                             .settings = Json::Object{},
                             .run = disk.root() / "new/runs/run",
                             .device = {}};
  LoneWorld alone;
  ASSERT_EQ(train(options, {.world = alone}), 0);
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

}  // namespace
}  // namespace lockstep::testing

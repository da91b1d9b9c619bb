#include "train/machine_files.h"

#include <atomic>
#include <gtest/gtest.h>
#include <sched.h>

#include "dist/thread_world.h"
#include "tests/data/shards.h"

namespace lockstep::testing::machine_files_test {

std::string directory_of(const TemporaryDirectory& parent) {
  return (parent / "d").string();
}

TEST(MachineFiles, ranks_of_a_machine_read_by_its_first) {
  const TemporaryDirectory directory;
  const auto tokens = random_documents(500);
  write_dataset(directory / "d", tokens, 97);
  run_thread_ranks(3, [&](World& world) {
    MachineFiles files({}, world);
    const Dataset dataset({(directory / "d").string()}, &files.files());
    Tokens read(tokens.size());
    dataset.read(read, 0);
    EXPECT_EQ(read, tokens);
    const bool is_first = dynamic_cast<const NodeFiles*>(&files.files()) != nullptr;
    EXPECT_EQ(is_first, world.rank() == 0);
    world.exchange("");
    if (is_first) {  // 6 shards and their lists, and dataset.json
      EXPECT_EQ(dynamic_cast<const NodeFiles&>(files.files()).opened_local(), 13);
    }
    EXPECT_FALSE(files.counts().has_value());
    world.exchange("");
  });
}

// As a container of its own has it.
TEST(MachineFiles, a_rank_that_cannot_reach_the_first_one_opens_files_itself) {
  const TemporaryDirectory directory;
  const auto tokens = random_documents(500);
  write_dataset(directory_of(directory), tokens, 97);
  std::atomic<bool> may_leave = true;
  run_thread_ranks(3, [&](World& world) {
    if (world.rank() == 1) may_leave = unshare(CLONE_NEWNET) == 0;  // of this thread alone
    world.exchange("");
    if (!may_leave) return;
    MachineFiles files({}, world);
    const auto* own = dynamic_cast<const NodeFiles*>(&files.files());
    EXPECT_EQ(own != nullptr, world.rank() < 2);
    files.need_room({});
    const Dataset dataset({directory_of(directory)}, &files.files());
    Tokens read(tokens.size());
    dataset.read(read, 0);
    EXPECT_EQ(read, tokens);
    world.exchange("");
    if (own != nullptr) {
      EXPECT_EQ(own->opened_local(), 13);
    }
    world.exchange("");
  });
  if (!may_leave) GTEST_SKIP() << "a thread may not have a network of its own here";
}

TEST(MachineFiles, room_is_needed_of_each_source_once) {
  Loader::Config reads;
  reads.sources = {{.paths = {"a"}}};
  reads.shuffle_shards = 4;
  EXPECT_EQ(Loader::shards_at_once(reads), 9);
  reads.shuffle = false;
  EXPECT_EQ(Loader::shards_at_once(reads), 3);
  LoneWorld world;
  MachineFiles files({}, world);
  files.need_room({reads});  // what is local needs none
}

TEST(MachineFiles, a_rank_alone_needs_nobody) {
  const TemporaryDirectory directory;
  write_dataset(directory / "d", random_documents(500), 97);
  LoneWorld world;
  MachineFiles files({}, world);
  EXPECT_EQ(Dataset({(directory / "d").string()}, &files.files()).tokens(), 500);
  files.stop();
  EXPECT_EQ(Dataset({(directory / "d").string()}, &files.files()).tokens(), 500);
}

TEST(MachineFiles, counts_in_words) {
  ShardCache::Counts before{.hits = 2, .misses = 1, .fetched = 3, .fetched_bytes = 1'000'000},
      now = before;
  EXPECT_EQ(in_words(now, before), "");
  now.hits = 12;
  now.fetched = 5;
  now.fetched_bytes = 601'000'000;
  now.fetching_seconds = 1.5;
  now.evicted = 2;
  EXPECT_EQ(in_words(now, before),
            "2 files fetched, 600 MB at 400 MB/s, 10 opened from the cache, 0 waited for (0 s), "
            "2 removed");
}

}  // namespace lockstep::testing::machine_files_test

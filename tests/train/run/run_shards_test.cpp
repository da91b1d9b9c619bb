#include "train/run/run_shards.h"

#include <atomic>
#include <gtest/gtest.h>
#include <sched.h>

#include "tests/data/shards.h"
#include "tests/support/thread_world.h"
#include "tests/wording.h"

namespace lockstep::testing::machine_files_test {

class RunShardsTest : public ::testing::Test {
 protected:
  RunShardsTest() { write_dataset(path_, tokens_, 97); }

  void expect_all_tokens(RunShards& files) const {
    const Dataset dataset({path_}, &files.files());
    Tokens read(tokens_.size());
    dataset.read(read, 0);
    EXPECT_EQ(read, tokens_);
  }
  static const HostShards* own_files(RunShards& files) {
    return dynamic_cast<const HostShards*>(&files.files());
  }

  TemporaryDirectory directory_;
  const std::string path_ = (directory_ / "d").string();
  const Tokens tokens_ = random_documents(500);
};

TEST_F(RunShardsTest, ranks_of_a_host_read_through_its_first_rank) {
  run_thread_ranks(3, [&](World& world) {
    RunShards files({}, world);
    expect_all_tokens(files);
    const auto* own = own_files(files);
    EXPECT_EQ(own != nullptr, world.rank() == 0);
    world.exchange("");
    if (own != nullptr) {  // 6 shards and their lists, and dataset.json
      EXPECT_EQ(own->opened_local(), 13);
    }
    EXPECT_FALSE(files.counts().has_value());
    world.exchange("");
  });
}

// A rank in its own container has its own network.
TEST_F(RunShardsTest, a_rank_that_cannot_reach_the_first_rank_opens_files_itself) {
  std::atomic<bool> may_leave = true;
  run_thread_ranks(3, [&](World& world) {
    if (world.rank() == 1) may_leave = unshare(CLONE_NEWNET) == 0;  // of this thread alone
    world.exchange("");
    if (!may_leave) return;
    RunShards files({}, world);
    const auto* own = own_files(files);
    EXPECT_EQ(own != nullptr, world.rank() < 2);
    files.need_room({});
    expect_all_tokens(files);
    world.exchange("");
    if (own != nullptr) {
      EXPECT_EQ(own->opened_local(), 13);
    }
    world.exchange("");
  });
  if (!may_leave) GTEST_SKIP() << "a thread may not have a network of its own here";
}

TEST_F(RunShardsTest, a_single_rank_reads_files_even_after_stop) {
  LoneWorld world;
  RunShards files({}, world);
  expect_all_tokens(files);
  files.stop();
  expect_all_tokens(files);
}

TEST(RunShards, a_shuffled_source_opens_more_shards_at_once_and_a_local_one_needs_no_cache) {
  Loader::Config reads;
  reads.sources = {{.paths = {"a"}}};
  reads.shuffle_shards = 4;
  EXPECT_EQ(Loader::shards_at_once(reads), 9);
  reads.shuffle = false;
  EXPECT_EQ(Loader::shards_at_once(reads), 3);
  LoneWorld world;
  RunShards files({}, world);
  files.need_room({reads});  // no error, because the source is local
}

TEST(RunShards, describes_the_change_of_its_counts) {
  ShardCache::Counts before{.hits = 2, .misses = 1, .fetched = 3, .fetched_bytes = 1'000'000},
      now = before;
  EXPECT_EQ(in_words(now, before), "");
  now.hits = 12;
  now.fetched = 5;
  now.fetched_bytes = 601'000'000;
  now.fetching_seconds = 1.5;
  now.evicted = 2;
  const auto text = in_words(now, before);
  for (const char* pin : {"2", "600 MB", "400 MB/s", "10"})
    expect_contains(text, pin);
  expect_wording("train/run_shards", "counts", text);
}

}  // namespace lockstep::testing::machine_files_test

#include "data/open_shards.h"

#include <atomic>
#include <gtest/gtest.h>
#include <latch>
#include <thread>

#include "tests/data/shards.h"

namespace lockstep::testing::open_shards_test {

class OpenShardsTest : public ::testing::Test {
 protected:
  OpenShardsTest() { spit(directory_ / "x.bin", gpt2_shard({1, 2, 3})); }
  Shard open() const { return {TokenFile(directory_ / "x.bin"), nullptr, {}}; }

  TemporaryDirectory directory_;
};

TEST_F(OpenShardsTest, the_least_recently_used_is_closed) {
  std::vector<std::size_t> opened;
  OpenShards shards(3, [&](std::size_t i) {
    opened.push_back(i);
    return open();
  });
  for (const std::size_t i : {0, 1, 2, 0, 3, 0, 1, 2})
    EXPECT_EQ(shards.use(i)->file.tokens(), 3);
  // 3 closed 1, the 1 behind it 2, and the last 2 3.
  EXPECT_EQ(opened, (std::vector<std::size_t>{0, 1, 2, 3, 1, 2}));
  EXPECT_EQ(shards.count(), 3u);
}

TEST_F(OpenShardsTest, shards_in_use_stay_open) {
  int opened = 0;
  OpenShards shards(2, [&](std::size_t) {
    ++opened;
    return open();
  });
  const auto a = shards.use(0), b = shards.use(1);
  { const auto c = shards.use(2); }
  EXPECT_EQ(shards.count(), 3u);
  EXPECT_EQ(a->file.tokens() + b->file.tokens(), 6);
  EXPECT_EQ(shards.use(0)->file.tokens(), 3);
  EXPECT_EQ(opened, 3);
}

TEST_F(OpenShardsTest, unused_shards_that_are_not_kept_are_closed) {
  std::vector<std::size_t> opened;
  OpenShards shards(9, [&](std::size_t i) {
    opened.push_back(i);
    return open();
  });
  for (const std::size_t i : {0, 1, 2})
    shards.use(i);
  const auto in_use = shards.use(3);
  shards.keep({1, 7});
  EXPECT_EQ(shards.count(), 2u);
  EXPECT_EQ(in_use->file.tokens(), 3);
  for (const std::size_t i : {0, 1, 2, 3})
    shards.use(i);
  EXPECT_EQ(opened, (std::vector<std::size_t>{0, 1, 2, 3, 0, 2}));
}

TEST_F(OpenShardsTest, opening_a_shard_is_retried_after_an_error) {
  int tries = 0;
  OpenShards shards(2, [&](std::size_t) {
    if (++tries == 1) throw DataError("not yet");
    return open();
  });
  EXPECT_EQ(message_of<DataError>([&] { shards.use(7); }), "not yet");
  EXPECT_EQ(shards.count(), 0u);
  EXPECT_EQ(shards.use(7)->file.tokens(), 3);
}

TEST_F(OpenShardsTest, a_shard_is_opened_once_and_other_threads_do_not_wait) {
  std::atomic<int> opened = 0;
  std::latch both(2);  // each opening waits until the other one goes on too
  OpenShards shards(8, [&](std::size_t) {
    ++opened;
    both.arrive_and_wait();
    return open();
  });
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 6; ++i)
    threads.emplace_back([&, i] { EXPECT_EQ(shards.use(i % 2)->file.tokens(), 3); });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(opened, 2);
}

}  // namespace lockstep::testing::open_shards_test

#include "dist/collective_ring.h"

#include <future>

#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing::collective_ring_test {

TEST(CollectiveRing, has_no_collective_at_first) {
  CollectiveRing ring;
  const auto now = ring.activity();
  EXPECT_EQ(now.collectives, 0u);
  EXPECT_FALSE(now.inside);
}

TEST(CollectiveRing, reports_step_unit_and_collective_of_a_rank) {
  CollectiveRing ring;
  ring.begin_step(12);
  ring.about("layer 3");
  const auto first = ring.begin("all_gather", "shard gathers", 100, {});
  auto now = ring.activity();
  EXPECT_EQ(now.step, 12);
  EXPECT_EQ(now.collectives, 1u);
  EXPECT_TRUE(now.inside);
  EXPECT_EQ(Activity::text(now.collective), "all_gather (shard gathers)");
  EXPECT_EQ(Activity::text(now.unit), "layer 3");
  ring.end(first, {});
  now = ring.activity();
  EXPECT_EQ(now.collectives, 1u);
  EXPECT_FALSE(now.inside);
}

// Work on another stream may end before earlier work of the program.
TEST(CollectiveRing, reports_the_first_collective_that_has_not_ended) {
  CollectiveRing ring;
  Stream stream(Device{}, "gathers", Stream::Mode::queued);
  std::promise<void> promise;
  auto* go = &promise;
  ring.end(ring.begin("all_gather", "a", 1, {}), {});
  const auto second = ring.begin("all_gather", "b", 1, stream.record());
  stream.enqueue([go](Stream&) { go->get_future().wait(); });
  ring.end(second, stream.record());
  ring.end(ring.begin("all_reduce", "c", 1, {}), {});
  auto now = ring.activity();
  EXPECT_EQ(now.collectives, 2u);
  EXPECT_TRUE(now.inside);
  EXPECT_EQ(Activity::text(now.collective), "all_gather (b)");
  promise.set_value();
  stream.synchronize();
  now = ring.activity();
  EXPECT_EQ(now.collectives, 3u);
  EXPECT_FALSE(now.inside);
}

TEST(CollectiveRing, does_not_count_a_collective_that_its_stream_has_not_reached) {
  CollectiveRing ring;
  Stream stream(Device{}, "gathers", Stream::Mode::queued);
  std::promise<void> promise;
  auto* go = &promise;
  stream.enqueue([go](Stream&) { go->get_future().wait(); });  // slow compute
  const auto number = ring.begin("all_gather", "a", 1, stream.record());
  ring.end(number, stream.record());
  EXPECT_EQ(ring.activity().collectives, 0u);
  promise.set_value();
  stream.synchronize();
  EXPECT_EQ(ring.activity().collectives, 1u);
}

TEST(CollectiveRing, counts_begin_and_end_of_a_collective_as_progress) {
  CollectiveRing ring;
  const auto before = ring.activity().progress;
  const auto number = ring.begin("all_gather", "a", 1, {});
  const auto entered = ring.activity().progress;
  EXPECT_GT(entered, before);
  EXPECT_EQ(ring.activity().progress, entered);
  ring.end(number, {});
  EXPECT_GT(ring.activity().progress, entered);
}

TEST(CollectiveRing, lists_the_last_collectives) {
  CollectiveRing ring;
  ring.begin_step(1);
  for (std::uint64_t i = 0; i < 3 * CollectiveRing::kEntries; ++i)
    ring.end(ring.begin("all_gather", "a", 1, {}), {});
  ring.about("head");
  ring.begin("all_to_all", "shard scatters inside", 4711, {});
  const auto words = ring.in_words();
  expect_contains(words, "3073    1     inside  all_to_all  shard scatters inside  head  4711\n");
  expect_contains(words, "3072    1     left    all_gather  a                            1\n");
  EXPECT_EQ(words.find("3000 "), std::string::npos);
}

TEST(CollectiveRing, an_aside_sets_another_unit_during_its_lifetime) {
  CollectiveRing ring;
  ring.about("layer 1");
  {
    const CollectiveRing::Aside aside(&ring, "layer 2");
    ring.end(ring.begin("all_gather", "a", 1, {}), {});
    EXPECT_EQ(Activity::text(ring.activity().unit), "layer 2");
  }
  ring.end(ring.begin("all_gather", "a", 1, {}), {});
  EXPECT_EQ(Activity::text(ring.activity().unit), "layer 1");
}

// Communicators record the same calls on every rank, on any stream.
TEST(CollectiveRing, records_the_calls_of_communicators) {
  run_thread_ranks(3, [](World& world) {
    CollectiveRing ring;
    const auto group = world.connect({"group", {0, 1, 2}});
    const auto weights = world.connect({"weights", {0, 1, 2}});
    group->record_in(&ring);
    weights->record_in(&ring);
    Bench bench;
    const auto one = bench.poisoned({3}, DType::fp32), all = bench.poisoned({9}, DType::fp32);
    Stream queued(Device{}, "beside", Stream::Mode::queued);
    weights->all_gather(all, one, queued);
    queued.synchronize();
    group->together([&] {
      group->all_reduce(one, ReduceOp::sum, bench.stream);
      group->all_reduce(one, ReduceOp::max, bench.stream);
    });
    const auto now = ring.activity();
    // Calls inside together() count once, also if there are none.
    group->together([] {});
    EXPECT_EQ(ring.activity().collectives, 3u);
    EXPECT_FALSE(now.inside);
    expect_contains(ring.in_words(), "1       0     left   all_gather  weights");
    expect_contains(ring.in_words(), "2       0     left   all_reduce  group");
    expect_contains(ring.in_words(), "3       0     left   nothing     group");
    ring.forget_events();
  });
}

}  // namespace lockstep::testing::collective_ring_test

#include "dist/reduction.h"

#include <gtest/gtest.h>

#include "tests/dist/ring_world.h"
#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing::reduction_test {

// A topology of d ranks; each `per_domain` neighbours are an NVLink domain.
Topology domains_of(int d, int per_domain) {
  Topology topology;
  topology.places.resize(static_cast<std::size_t>(d));
  for (int r = 0; r < d; ++r) {
    if (r % per_domain == 0) topology.domains.push_back({.name = str("domain ", r), .ranks = {}});
    topology.domains.back().ranks.push_back(r);
    topology.domain_of.push_back(r / per_domain);
  }
  return topology;
}

// Term of a rank in a sum that depends on its order.
float term(int rank, std::int64_t i) {
  return static_cast<float>(
             philox(3, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i))[0] %
             10007) /
         997.0f;
}

float as(DType wire, float x) {
  return wire == DType::bf16 ? to_float(to_bf16(x)) : x;
}

// Adds in the order of ranks, domain by domain. Inside a domain, terms have the type of the wire.
float expected_sum(int d, int per_domain, DType wire, std::int64_t i) {
  float sum = 0;
  for (int first = 0; first < d; first += per_domain) {
    float inside = 0;
    for (int r = first; r < first + per_domain; ++r) {
      const float x = per_domain > 1 ? as(wire, term(r, i)) : term(r, i);
      inside = r == first ? x : inside + x;
    }
    sum = first == 0 ? inside : sum + inside;
  }
  return sum;
}

struct Case {
  int ranks, per_domain;
  DType wire;
  Stream::Mode mode;
};

class Reductions : public ::testing::TestWithParam<Case> {};

TEST_P(Reductions, add_in_the_order_of_ranks_also_in_chunks_and_in_place) {
  const auto c = GetParam();
  const auto topology = domains_of(c.ranks, c.per_domain);
  constexpr std::int64_t kN = 5 * ReduceRing::kMultiple;
  for (const std::int64_t most : {std::int64_t{1} << 20, std::int64_t{1}})
    run_thread_ranks(c.ranks, [&](World& threads) {
      RingWorld world(threads);
      const auto comms = make_comms(world, Mesh{.replicate = c.ranks}, &topology);
      const Levels& levels = comms.replicate;
      Bench b{.threads = 1, .host_bytes = std::int64_t{8} << 20};
      Stream stream(Device{}, "scatters", c.mode), across(Device{}, "across", c.mode);
      const ReduceRing::Streams streams{stream, across};
      const ReduceRing ring(b.arena, c.wire, {&comms.shard, &comms.replicate}, kN, most);
      const auto whole = b.poisoned({c.ranks * kN}, DType::fp32);
      for (std::int64_t i = 0; i < whole.elements(); ++i)
        whole.as<float>()[i] = term(world.rank(), i);
      const auto all = b.copy(whole), in_place = b.copy(whole);
      const auto sum = b.poisoned({kN}, DType::fp32), added = b.poisoned({kN}, DType::fp32);
      for (std::int64_t i = 0; i < kN; ++i)
        added.as<float>()[i] = 0.5f;
      const auto mine = in_place.rows(world.rank() * kN, kN);
      ring.reduce_scatter(streams, levels, sum, whole);
      ring.reduce_scatter(streams, levels, added, whole, /*add=*/true);
      ring.reduce_scatter(streams, levels, mine, in_place);
      ring.all_reduce(streams, levels, all);
      stream.synchronize();
      for (std::int64_t i = 0; i < kN; ++i) {
        const float expected = expected_sum(c.ranks, c.per_domain, c.wire, world.rank() * kN + i);
        ASSERT_EQ(sum.as<float>()[i], expected) << i;
        ASSERT_EQ(added.as<float>()[i], expected + 0.5f) << i;
        ASSERT_EQ(mine.as<float>()[i], expected) << i;
      }
      for (std::int64_t i = 0; i < all.elements(); ++i)
        ASSERT_EQ(all.as<float>()[i], expected_sum(c.ranks, c.per_domain, c.wire, i)) << i;
      // Each sum is one entry, and the all-gather after the last one is another.
      EXPECT_EQ(world.ring()->activity().collectives, 5u);
      expect_contains(world.ring()->in_words(),
                      "5       0     left     all_gather    replicate sums");
      expect_contains(world.ring()->in_words(), "4       0     left     reduce_scatter");
      world.ring()->forget_events();
      EXPECT_EQ(levels.inside->size(), c.per_domain);
      EXPECT_EQ(levels.across->size(), c.ranks / c.per_domain);
    });
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& [ranks, per_domain] :
       std::vector<std::pair<int, int>>{{2, 2}, {3, 3}, {4, 2}, {6, 2}, {6, 3}, {4, 1}, {8, 4}})
    for (const auto wire : {DType::fp32, DType::bf16})
      for (const auto mode : {Stream::Mode::immediate, Stream::Mode::queued})
        cases.push_back({ranks, per_domain, wire, mode});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(all, Reductions, ::testing::ValuesIn(all_cases()), [](const auto& c) {
  return str(c.param.ranks, "_ranks_by_", c.param.per_domain, "_", name(c.param.wire),
             c.param.mode == Stream::Mode::queued ? "_queued" : "");
});

TEST(ReduceRing, a_single_rank_takes_no_memory) {
  const auto comms = make_comms();
  Bench b;
  const ReduceRing ring(b.arena, DType::fp32, {&comms.shard, &comms.replicate}, 1 << 20);
  EXPECT_EQ(b.arena.used_bytes(), 0);
}

TEST(Comms, domains_of_unequal_sizes_have_one_level) {
  auto topology = domains_of(4, 2);
  topology.domains = {{.name = "a", .ranks = {0, 1, 2}}, {.name = "b", .ranks = {3}}};
  topology.domain_of = {0, 0, 0, 1};
  LoneWorld world(1, 4);
  const auto comms = make_comms(world, Mesh{.shard = 4}, &topology);
  EXPECT_EQ(comms.shard.inside->size(), 1);
  EXPECT_EQ(comms.shard.across->size(), 4);
  EXPECT_EQ(comms.shard.across->rank(), 1);
}

TEST(Comms, a_mesh_of_another_size_is_rejected) {
  LoneWorld world(0, 4);
  EXPECT_THROW(make_comms(world, Mesh{.shard = 2}), Error);
}

}  // namespace lockstep::testing::reduction_test

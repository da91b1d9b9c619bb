#include "dist/reduction.h"

#include <array>
#include <cmath>
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

struct Case {
  int ranks, per_domain;
  Reduce reduce;
  DType wire;
  Stream::Mode mode;

  bool has_both() const { return 1 < per_domain && per_domain < ranks; }
};

// The sum of element i, which rank `owner` makes: in the order of ranks, domain by domain; with
// nccl in the order of a ring that ends at the owner. all: every rank gets the sum.
float expected_sum(const Case& c, std::int64_t i, int owner, bool all) {
  const int d = c.ranks;
  if (c.reduce == Reduce::nccl) {
    float sum = as(c.wire, term((owner + 1) % d, i));
    for (int hop = 2; hop <= d; ++hop)
      sum = as(c.wire, sum + as(c.wire, term((owner + hop) % d, i)));
    return sum;
  }
  const bool narrow = c.reduce == Reduce::bf16;
  float sum = 0;
  for (int first = 0; first < d; first += c.per_domain) {
    float inside = 0;
    for (int r = first; r < first + c.per_domain; ++r) {
      const float x = narrow || c.per_domain > 1 ? as(c.wire, term(r, i)) : term(r, i);
      inside = r == first ? x : inside + x;
    }
    if (narrow && all && c.has_both()) inside = as(c.wire, inside);
    sum = first == 0 ? inside : sum + inside;
  }
  return narrow && all ? as(c.wire, sum) : sum;
}

// Each rounding to p bits moves a number by at most 2^-p of itself.
void expect_near_float64(const Case& c, float found, std::int64_t i, bool all) {
  double sum = 0, size = 0;
  for (int r = 0; r < c.ranks; ++r) {
    sum += term(r, i);
    size += std::abs(term(r, i));
  }
  const int roundings = c.reduce == Reduce::nccl          ? c.ranks
                        : c.reduce == Reduce::bf16 && all ? 2 + (c.has_both() ? 1 : 0)
                                                          : 1;
  const double of_wire = c.wire == DType::bf16 ? roundings * 0x1p-8 : 0;
  ASSERT_NEAR(found, sum, (1.05 * of_wire + c.ranks * 0x1p-24) * size) << i;
}

// Each sum by two levels is one entry of the ring, and each call of the whole group is another.
void expect_entries(CollectiveRing& ring, const Levels& levels, const Case& c) {
  const auto gathers = levels.whole->traffic(Collective::all_gather).calls,
             scatters = levels.whole->traffic(Collective::reduce_scatter).calls;
  const bool by_library = c.reduce == Reduce::nccl;
  EXPECT_EQ(static_cast<std::int64_t>(ring.activity().collectives),
            gathers + (by_library ? scatters : 8));
  expect_contains(ring.in_words(), "left   all_gather      replicate sums");
  expect_contains(ring.in_words(), "left   reduce_scatter  replicate sums");
  EXPECT_EQ(levels.size(), c.ranks);
  EXPECT_EQ(levels.whole->size(), c.ranks);
  EXPECT_EQ(levels.inside->size(), by_library ? 1 : c.per_domain);
  EXPECT_EQ(levels.across->size(), by_library ? 1 : c.ranks / c.per_domain);
}

class Reductions : public ::testing::TestWithParam<Case> {};

TEST_P(Reductions, add_in_the_order_of_ranks_also_in_chunks_and_in_place) {
  const auto c = GetParam();
  const auto topology = domains_of(c.ranks, c.per_domain);
  // The smaller ring is that of shorter sums: as small for these as kMostBytes makes it for huge
  // ones. The larger number of elements then takes several chunks, and its sums are gathered in
  // two.
  constexpr std::int64_t kMost = 15 * ReduceRing::kMultiple;
  for (const std::int64_t elements : {kMost, ReduceRing::kMultiple})
    run_thread_ranks(c.ranks, [&](World& threads) {
      RingWorld world(threads);
      const auto comms = make_comms(world, Mesh{.replicate = c.ranks}, &topology, c.reduce);
      const Levels& levels = comms.replicate;
      Bench b{.threads = 1, .host_bytes = std::int64_t{8} << 20};
      Stream stream(Device{}, "scatters", c.mode), across(Device{}, "across", c.mode);
      const ReduceRing::Streams streams{stream, across};
      const ReduceRing ring(b.arena, c.reduce, c.wire, {&comms.shard, &comms.replicate}, elements);
      for (const std::int64_t n : {kMost, 3 * ReduceRing::kMultiple}) {
        const auto whole = b.poisoned({c.ranks * n}, DType::fp32);
        for (std::int64_t i = 0; i < whole.elements(); ++i)
          whole.as<float>()[i] = term(world.rank(), i);
        const auto all = b.copy(whole), in_place = b.copy(whole);
        const auto sum = b.poisoned({n}, DType::fp32), added = b.poisoned({n}, DType::fp32);
        for (std::int64_t i = 0; i < n; ++i)
          added.as<float>()[i] = 0.5f;
        const auto mine = in_place.rows(world.rank() * n, n);
        ring.reduce_scatter(streams, levels, sum, whole);
        ring.reduce_scatter(streams, levels, added, whole, /*add=*/true);
        ring.reduce_scatter(streams, levels, mine, in_place);
        ring.all_reduce(streams, levels, all);
        stream.synchronize();
        for (std::int64_t i = 0; i < n; ++i) {
          const auto place = world.rank() * n + i;
          const float expected = expected_sum(c, place, world.rank(), false);
          ASSERT_EQ(sum.as<float>()[i], expected) << i;
          ASSERT_EQ(added.as<float>()[i], expected + 0.5f) << i;
          ASSERT_EQ(mine.as<float>()[i], expected) << i;
          expect_near_float64(c, expected, place, false);
        }
        for (std::int64_t i = 0; i < all.elements(); ++i) {
          const float expected = expected_sum(c, i, static_cast<int>(i / n), true);
          ASSERT_EQ(all.as<float>()[i], expected) << i;
          expect_near_float64(c, expected, i, true);
        }
      }
      expect_entries(*world.ring(), levels, c);
      world.ring()->forget_events();
    });
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& [ranks, per_domain] :
       std::vector<std::pair<int, int>>{{2, 2}, {3, 3}, {4, 2}, {6, 2}, {6, 3}, {4, 1}, {8, 4}})
    for (const auto& [reduce, wire] : {std::pair{Reduce::fp32, DType::fp32},
                                       {Reduce::fp32, DType::bf16},
                                       {Reduce::bf16, DType::bf16},
                                       {Reduce::nccl, DType::fp32},
                                       {Reduce::nccl, DType::bf16}})
      for (const auto mode : {Stream::Mode::immediate, Stream::Mode::queued})
        cases.push_back({ranks, per_domain, reduce, wire, mode});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(all, Reductions, ::testing::ValuesIn(all_cases()), [](const auto& c) {
  return str(c.param.ranks, "_ranks_by_", c.param.per_domain, "_",
             std::array{"fp32", "bf16", "nccl"}[static_cast<std::size_t>(c.param.reduce)], "_of_",
             name(c.param.wire), c.param.mode == Stream::Mode::queued ? "_queued" : "");
});

TEST(ReduceRing, a_single_rank_takes_no_memory) {
  const auto comms = make_comms();
  Bench b;
  const ReduceRing ring(b.arena, Reduce::fp32, DType::fp32, {&comms.shard, &comms.replicate},
                        1 << 20);
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

// NCCL groups take memory of a GPU. There is none that no reduction uses.
TEST(Comms, each_way_to_reduce_connects_only_its_groups) {
  struct Connected final : WorldOver {
    using WorldOver::WorldOver;
    std::unique_ptr<Communicator> connect(const GroupConfig& group) override {
      names.push_back(group.name);
      return under_.connect(group);
    }
    std::vector<std::string> names;
  };
  const auto connected = [](Reduce reduce) {
    LoneWorld lone(1, 4);
    Connected world(lone);
    make_comms(world, Mesh{.replicate = 2, .shard = 2}, nullptr, reduce);
    return world.names;
  };
  const std::vector<std::string> two_levels{"all ranks",
                                            "tensor",
                                            "shard gathers",
                                            "shard scatters inside",
                                            "shard scatters across",
                                            "replicate sums inside",
                                            "replicate sums across",
                                            "replicate sums"};
  EXPECT_EQ(connected(Reduce::fp32), two_levels);
  EXPECT_EQ(connected(Reduce::bf16), two_levels);
  EXPECT_EQ(connected(Reduce::nccl),
            (std::vector<std::string>{"all ranks", "tensor", "shard gathers", "shard scatters",
                                      "replicate sums"}));
}

TEST(Comms, a_mesh_of_another_size_is_rejected) {
  LoneWorld world(0, 4);
  EXPECT_THROW(make_comms(world, Mesh{.shard = 2}), Error);
}

}  // namespace lockstep::testing::reduction_test

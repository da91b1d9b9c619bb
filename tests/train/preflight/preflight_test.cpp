#include "train/preflight/preflight.h"

#include <cmath>
#include <gtest/gtest.h>

#include "dist/thread_world.h"
#include "tests/files.h"
#include "train/preflight/preflight_checks.h"

namespace lockstep::testing {
namespace {

// Ranks of pretend hosts, so many on each.
Topology hosts(const std::vector<int>& ranks) {
  std::vector<RankPlace> places;
  for (std::size_t h = 0; h < ranks.size(); ++h)
    for (int i = 0; i < ranks[h]; ++i) {
      RankPlace place;
      place.host = place.machine = str("n", h + 1);
      places.push_back(place);
    }
  return topology_of(std::move(places));
}

Config tiny() {
  Config config;
  config.model = family_defaults(Family::llama3);
  config.model.layers = 1;
  config.model.width = 64;
  config.model.heads = config.model.kv_heads = 2;
  config.model.head_size = 32;
  config.model.mlp_width = 96;
  config.model.vocabulary = 257;
  config.model.max_positions = 32;
  config.train.sequence_length = 32;
  config.train.micro_batch = 1;
  config.train.batch_tokens = 32 * 8;
  return config;
}

std::vector<Preflight> on_hosts(const std::vector<int>& ranks, const Config* config,
                                const std::filesystem::path& scratch) {
  const int tensor = config == nullptr ? 1 : config->layout.tensor;
  const Topology topology = hosts(ranks);
  const auto size = static_cast<int>(topology.places.size());
  std::vector<Preflight> all(topology.places.size());
  run_thread_ranks(size, [&](World& world) {
    all[static_cast<std::size_t>(world.rank())] =
        preflight({.config = config,
                   .mesh = Mesh{{1, size / tensor, tensor}},
                   .device = {},
                   .scratch = scratch},
                  world, topology);
  });
  return all;
}

const Finding* find(const Preflight& of, const std::string& check) {
  for (const Finding& one : of.findings)
    if (one.check == check) return &one;
  return nullptr;
}

TEST(Preflight, measures_each_rank_and_what_plans_need) {
  const TemporaryDirectory scratch;
  const Config config = [] {
    Config c = tiny();
    c.layout.ranks = c.layout.shard = 2;
    return c;
  }();
  const auto all = on_hosts({1, 1}, &config, scratch.path());
  for (const Preflight& one : all)
    for (const char* check :
         {"product 1024 x 1024 x 1024 fp32", "product 1024 x 1024 x 1024 bf16",
          "share of its processors' time", "memory, read and written", "copy from the host",
          "copy to the host", "sends to other hosts", "storage, written", "storage, read",
          "a step's own operators", "errors of adapters and processors, new"}) {
      ASSERT_NE(find(one, check), nullptr) << check;
      EXPECT_EQ(find(one, check)->failure, "") << check;
      EXPECT_FALSE(std::isnan(find(one, check)->value)) << check;
    }
  const auto& product = "product 1024 x 1024 x 1024 fp32";
  EXPECT_EQ(find(all[0], product)->bits, find(all[1], product)->bits);
  EXPECT_EQ(find(all[0], product)->bits.size(), 32u);
  const Cluster& cluster = all[0].cluster;
  check(cluster);
  EXPECT_EQ(cluster.device, Device::Kind::cpu);
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_EQ(cluster.ranks_per_node, 1);
  EXPECT_GT(cluster.operators.times().size(), 10u);
  EXPECT_EQ(cluster.links.links().size(), 6u);  // three kinds, on the compute stream and beside it
  EXPECT_GE(cluster.compute_beside, 1);
  EXPECT_GE(cluster.other_beside, 1);
  EXPECT_GT(cluster.storage_write_bytes_per_second, 0);
  EXPECT_GT(cluster.constant_bytes, 0);
  EXPECT_EQ(to_json(parse_cluster(to_json(cluster))).dump(), to_json(cluster).dump());
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

// Where ranks wait at once for each other's parts of a layer.
TEST(Preflight, measures_what_ranks_wait_for_each_other) {
  const TemporaryDirectory scratch;
  Config config = tiny();
  config.layout.ranks = config.layout.tensor = 2;
  const auto all = on_hosts({2}, &config, scratch.path());
  EXPECT_GT(all[0].cluster.wait_share, 0);
  EXPECT_EQ(all[0].cluster.wait_share, all[1].cluster.wait_share);
}

// Of tiny(), by hand: most FLOPs are in q, k and v together (3 x 64 columns), and in gate and up (2
// x 96): forward, and backward for inputs and weights, of 32 tokens.
TEST(Preflight, products_are_those_that_a_step_spends_most_on) {
  const Config config = tiny();
  Stream compute(Device{}, "compute");
  const auto shapes = product_shapes(&config, compute, hosts({1}), 0);
  ASSERT_EQ(shapes.size(), 6u);
  for (const ProductShape& shape : {ProductShape{1024, 1024, 1024, DType::fp32},
                                    {1024, 1024, 1024, DType::bf16},
                                    {32, 192, 64, DType::fp32},
                                    {32, 64, 192, DType::fp32},
                                    {192, 64, 32, DType::fp32}})
    EXPECT_NE(std::find(shapes.begin(), shapes.end(), shape), shapes.end())
        << shape.M << " x " << shape.N << " x " << shape.K;
}

TEST(Preflight, every_host_sends_whatever_their_number) {
  const TemporaryDirectory scratch;
  for (const std::vector<int>& ranks :
       {std::vector<int>{1, 1, 1}, {2, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 1}}) {
    const Topology topology = hosts(ranks);
    const auto size = static_cast<int>(topology.places.size());
    std::vector<std::vector<Finding>> found(topology.places.size());
    run_thread_ranks(size, [&](World& world) {
      Stream compute(Device{}, "compute");
      Comms comms = make_comms(world, Mesh{{1, size, 1}}, &topology);
      PreflightRank rank{world, topology, comms, compute, nullptr, {}};
      check_hosts(rank);
      found[static_cast<std::size_t>(world.rank())] = rank.findings;
    });
    for (std::size_t r = 0; r < found.size(); ++r) {
      // The second rank of the first of two hosts has no partner on the other.
      const bool is_lonely = ranks.size() == 2 && r == 1;
      ASSERT_EQ(found[r].size(), is_lonely ? 0u : ranks.size() > 2 ? 2u : 1u) << r;
      for (const Finding& one : found[r])
        EXPECT_GT(one.value, 0);
    }
    if (ranks.size() == 2) {
      EXPECT_EQ(found[0].front().whose, "host n1, rank 0 (to host n2)");
      EXPECT_EQ(found[2].front().whose, "host n2, rank 2 (to host n1)");
    }
  }
}

TEST(Preflight, a_folder_that_is_not_there_is_a_wrong_configuration) {
  Stream compute(Device{}, "compute");
  LoneWorld world;
  const Topology topology = hosts({1});
  Comms comms = make_comms();
  PreflightRank rank{world, topology, comms, compute, nullptr, {}};
  check_storage(rank, "/nowhere");
  ASSERT_EQ(rank.findings.size(), 2u);
  EXPECT_EQ(rank.findings[0].failure, "--scratch /nowhere: no such folder");
  EXPECT_TRUE(rank.findings[0].is_wrong_configuration);
  EXPECT_NE(rank.findings[1].failure, "");  // nothing was written that could be read
}

}  // namespace
}  // namespace lockstep::testing

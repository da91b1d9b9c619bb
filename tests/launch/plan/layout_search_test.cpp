#include "launch/plan/layout_search.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <regex>

#include "tests/launch/plan/cluster_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::layout_search_test {

// Full estimates of all layouts of 8 ranks.
std::vector<Estimate> all_of(const Config& config, const Cluster& cluster) {
  std::vector<Estimate> all;
  for (const std::int64_t tensor : {1, 2, 4, 8})
    for (std::int64_t shard = 1; shard <= 8 / tensor; shard *= 2)
      for (const auto sharding : {Sharding::full, Sharding::gradients, Sharding::optimizer})
        for (std::int64_t micro_batch = 1; micro_batch <= 8 * tensor; micro_batch *= 2)
          for (const auto recompute : {Recompute::none, Recompute::cheap, Recompute::block}) {
            Config c = config;
            c.layout.tensor = tensor;
            c.layout.shard = shard;
            c.layout.replicate = 8 / tensor / shard;
            c.layout.sharding = sharding;
            c.train.micro_batch = micro_batch;
            c.train.recompute = recompute;
            const auto layers = c.model.layers, apart = std::max<std::int64_t>(layers / 6, 1);
            const bool may_keep = shard > 1 && sharding == Sharding::full;
            for (std::int64_t kept = 0; kept <= (may_keep ? layers : 0); kept += apart) {
              c.layout.keep_gathered = kept;
              all.push_back(estimate(c, cluster));
            }
          }
  return all;
}

// Bytes of a rank without copies for checkpoints.
std::int64_t needed_by(const Estimate& one) {
  return one.bytes.training.device + one.bytes.training.pinned + one.bytes.batches;
}

// The wording of `text`; bytes and seconds of the plan are replaced.
void expect_said(const std::string& name, const std::string& text) {
  static const std::regex amount("[0-9.]+ (KiB|MiB|us|ms|s)\\b");
  expect_wording("launch/layout_search", name, std::regex_replace(text, amount, "N"));
}

void expect_found(const Config& config, const Cluster& cluster, double fastest) {
  const auto search = search_layouts(config, cluster, 2);
  ASSERT_FALSE(search.best.empty());
  EXPECT_NEAR(search.best.front().estimate.time.total(), fastest, 0.01 * fastest);
  EXPECT_LE(search.best.size(), 5u);
  double before = 0;
  for (const auto& one : search.best) {
    EXPECT_TRUE(one.estimate.fits());
    EXPECT_GE(one.estimate.time.total(), before - 1e-6)
        << "of equally fast ones, the smallest is first";
    before = one.estimate.time.total();
    EXPECT_FALSE(one.why.empty());
  }
  for (const auto& miss : search.misses) {
    const auto found = estimate(miss.config, cluster);
    EXPECT_FALSE(found.fits());
    EXPECT_EQ(found.missing_bytes(), miss.missing_bytes);
    EXPECT_EQ(found.missing_host_bytes(), miss.missing_host_bytes);
    EXPECT_LT(miss.step_seconds, search.best.front().estimate.time.total());
    expect_said("a faster one that misses", miss.why.substr(miss.why.find(": ")));
  }
}

// Memory fits few, some or all layouts; links are fast or slow.
TEST(LayoutSearch, finds_the_fastest_layout_that_fits) {
  for (const auto& [layers, link] : {std::pair{2, 1e10}, std::pair{12, 1e10}, std::pair{12, 1e8}}) {
    const Config config = small_run(8, layers);
    Cluster cluster = processors(8);
    cluster.hardware.nvlink_bytes_per_second = link;
    const auto all = all_of(config, cluster);
    std::vector<std::int64_t> needed;
    for (const auto& one : all)
      needed.push_back(needed_by(one));
    std::ranges::sort(needed);
    for (const double share : {0.02, 0.1, 0.3, 1.0}) {
      const auto at = static_cast<std::size_t>(share * static_cast<double>(needed.size() - 1));
      // Memory is linear in layers except for alignment.
      cluster.hardware.hbm_bytes = needed[at] + needed[at] / 100 + cluster.constant_bytes;
      double fastest = 1e9;
      for (const auto& one : all)
        if (needed_by(one) <= cluster.hardware.hbm_bytes - cluster.constant_bytes)
          fastest = std::min(fastest, one.time.total());
      SCOPED_TRACE(str(layers, " layers, ", link, " bytes a second, ", share));
      expect_found(config, cluster, fastest);
    }
  }
}

TEST(LayoutSearch, names_the_nearest_layouts_and_enough_nodes_if_none_fits) {
  Cluster cluster = processors(8);
  cluster.hardware.hbm_bytes = 1000;
  const auto search = search_layouts(small_run(8), cluster, 2);
  EXPECT_TRUE(search.best.empty());
  EXPECT_EQ(search.priced, 0);
  EXPECT_EQ(search.fitting_nodes, 0) << "activations of a sequence do not fit anywhere";
  EXPECT_EQ(search.tried_nodes, kMostPlannedRanks / 8);
  const Config large = small_run(8, 12);
  Config tight = large;
  tight.train.micro_batch = 1;
  tight.train.recompute = Recompute::block;
  const auto needed_on = [&](int nodes) {
    Cluster some = processors(8);
    some.nodes = nodes;
    tight.layout.ranks = std::int64_t{8} * nodes;
    tight.layout.tensor = 8;
    tight.layout.shard = nodes;
    return needed_by(estimate(tight, some));
  };
  const auto one = needed_on(1), two = needed_on(2);
  ASSERT_LT(two, one * 9 / 10);
  cluster.hardware.hbm_bytes = (one + two) / 2 + cluster.constant_bytes;
  Config held = large;
  held.layout.sharding = Sharding::optimizer;
  EXPECT_EQ(search_layouts(held, cluster, 2).fitting_nodes, 2) << "others are searched too";
  const auto found = search_layouts(large, cluster, 2);
  ASSERT_TRUE(found.best.empty());
  EXPECT_EQ(found.fitting_nodes, 2);
  ASSERT_FALSE(found.misses.empty());
  std::int64_t before = 0;
  for (const auto& miss : found.misses) {
    EXPECT_GT(miss.missing_bytes, 0);
    EXPECT_GE(miss.missing_bytes, before);
    before = miss.missing_bytes;
    expect_contains(miss.why, "recompute block: ");
    expect_said("the nearest where none fits", miss.why.substr(miss.why.find(": ")));
  }
  for (const auto& any : all_of(large, cluster))
    EXPECT_GE(any.missing_bytes(), found.misses.front().missing_bytes);
}

TEST(LayoutSearch, reports_the_masked_sequences_of_a_layout) {
  Config config = small_run(1);
  config.train.batch_tokens = 6 * 32;
  const auto search = search_layouts(config, processors(1), 1);
  std::string all;
  for (const auto& one : search.best)
    all += one.why + "\n";
  expect_contains(all, "micro-batch 4, 2 of 8");
  expect_said("why, with masked sequences", all);
  config.model.heads = config.model.kv_heads = 1;  // not divisible by tensor ranks
  config.layout.ranks = config.layout.shard = 4;
  const auto best = search_layouts(config, processors(4), 1).best.front().why;
  expect_contains(best, "2 of 8");
  expect_said("why, if the best masks", best);
}

// Six ranks on a host of eight GPUs are one domain, which three divides.
TEST(LayoutSearch, tries_tensor_sizes_that_divide_the_domains_in_use) {
  Config config = small_run(6);
  config.model.width = 72;
  config.model.heads = config.model.kv_heads = 9;
  config.model.mlp_width = 144;
  Cluster cluster = h100s(1);
  const auto priced = [&] { return search_layouts(config, cluster, 2).priced; };
  const auto with_three = priced();
  cluster.hardware.domain_ranks = 4;  // domains of four and two, which three does not divide
  EXPECT_GT(with_three, priced());
}

TEST(LayoutSearch, offloads_nothing_if_the_model_fits_without) {
  Config config = small_run(8);
  config.precision.compute = DType::bf16;
  Cluster cluster = h100s(1);
  cluster.constant_bytes = 1;
  const auto roomy = search_layouts(config, cluster, 2);
  ASSERT_FALSE(roomy.best.empty());
  for (const auto& one : roomy.best)
    EXPECT_FALSE(one.config.train.offloads()) << "what fits without is slower with it";
}

// Links are slow, and a sequence takes more memory than all blocks.
TEST(LayoutSearch, keeps_as_many_blocks_gathered_as_fit) {
  Config config = small_run(8, 24);
  config.model.max_positions = config.train.sequence_length = 512;
  config.train.batch_tokens = std::int64_t{8} * 8 * 512;
  Cluster cluster = processors(8);
  cluster.hardware.nvlink_bytes_per_second = 1e8;
  Config least = config;
  least.train.micro_batch = 1;
  least.train.recompute = Recompute::block;
  const auto needed = [&](std::int64_t kept) {
    least.layout.keep_gathered = kept;
    return needed_by(estimate(least, cluster));
  };
  const auto kept = [&](std::int64_t bytes) {
    cluster.hardware.hbm_bytes = bytes + cluster.constant_bytes;
    const auto search = search_layouts(config, cluster, 2);
    if (search.best.empty()) return std::int64_t{-1};
    const auto& best = search.best.front();
    EXPECT_EQ(best.config.layout.shard, 8);
    const auto blocks = best.config.layout.keep_gathered;
    expect_contains(layout_in_words(best.config),
                    blocks > 0 ? str("keep_gathered ", blocks) : std::string("sharding"));
    return blocks;
  };
  EXPECT_EQ(kept(needed(0)), 0);
  EXPECT_EQ(kept(needed(1)), 1);
  EXPECT_EQ(kept(needed(12)), 12);
  EXPECT_EQ(kept(needed(12) - 1), 11);
  EXPECT_LT(needed(24), needed(22)) << "blocks that share no buffer need none";
  EXPECT_EQ(kept(needed(24)), 24);
}

// The GPUs have so little memory that the optimizer must be offloaded.
TEST(LayoutSearch, offloads_only_what_is_needed_and_fits_into_host_memory) {
  Config config = small_run(8, 24);
  config.model.vocabulary = 64;
  config.precision.compute = DType::bf16;
  config.train.batch_tokens = std::int64_t{8} * 32;
  Config tight = config;
  tight.train.micro_batch = 1;
  tight.train.recompute = Recompute::block;
  tight.train.offload_optimizer = true;
  Cluster cluster = h100s(1);
  cluster.constant_bytes = 1;
  const auto bytes = estimate(tight, cluster).bytes;
  const auto needed = bytes.training;
  cluster.hardware.hbm_bytes = bytes.sum().device + needed.device / 50;
  const auto open = search_layouts(config, cluster, 2);
  ASSERT_FALSE(open.best.empty());
  EXPECT_TRUE(open.best.front().config.train.offload_optimizer);
  EXPECT_FALSE(open.best.front().config.train.offload_activations) << "that is not needed";
  cluster.host_memory_bytes = needed.pinned / 2;
  const auto closed = search_layouts(config, cluster, 2);
  for (const auto& one : closed.best)
    EXPECT_LE(8 * one.estimate.bytes.sum().pinned, cluster.host_memory_bytes);
  config.train.cuda_graphs = Config::CudaGraphs::on;  // they exclude offloading
  EXPECT_EQ(closed.priced, search_layouts(config, cluster, 2).priced);
  EXPECT_LT(closed.priced, open.priced);
}

TEST(LayoutSearch, describes_a_layout_in_words) {
  Config config = small_run(8);
  config.train.recompute = Recompute::block;
  expect_said("a layout", layout_in_words(config));
}

}  // namespace lockstep::testing::layout_search_test

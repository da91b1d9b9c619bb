// Plans for the configurations of this repository.
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>

#include "launch/config.h"
#include "launch/plan/cluster_file.h"
#include "launch/plan/estimate.h"
#include "launch/plan/layout_search.h"
#include "launch/plan/plan_band.h"
#include "launch/plan/run_costs.h"
#include "tests/files.h"
#include "train/run/run_config.h"

namespace lockstep::testing::plan_test {

const std::filesystem::path kConfigs = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "configs";

std::vector<Config> all_configs() {
  std::vector<Config> all;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs))
    if (entry.path().extension() == ".toml") {
      const auto alone =
          std::vector{parse_setting("layout.shard=1"), parse_setting("layout.tensor=1")};
      all.push_back(load_config(entry.path(), alone).values);
    }
  return all;
}

// A recorded step has the FLOPs of its matmuls and attention, and the bytes of its allocations.
TEST(Plan, flops_and_optimizer_memory_of_every_configuration_match_a_recorded_step) {
  const auto all = all_configs();
  EXPECT_GE(all.size(), 7u);
  struct {
    int tied = 0, ungated = 0, normed = 0, padded = 0;
  } kinds;
  for (Config c : all) {
    c.train.micro_batch = 1;
    c.train.recompute = Recompute::none;
    c.train.batch_tokens = 3 * c.train.sequence_length;  // three micro-batches, all recorded
    const auto program = record_step(training_config(c), Device{}, 1);
    double products = 0, attention = 0;
    for (const auto& entry : program.log->entries())
      (entry.op.kind == Op::Kind::product ? products : attention) += entry.op.flops;
    const auto& m = c.model;
    const auto tokens = static_cast<double>(c.train.batch_tokens);
    const auto T = static_cast<double>(c.train.sequence_length);
    const auto square = static_cast<double>(m.layers * m.attention_width()) * T;
    const auto flops = flops_per_token(m, c.train.sequence_length);
    // Matmuls include the padding of the vocabulary: to a multiple of 128, or of 16 if it is small.
    const std::int64_t rows = m.vocabulary >= 4096 ? 128 : 16;
    const double padding = 6.0 * static_cast<double>((rows - m.vocabulary % rows) % rows * m.width);
    EXPECT_DOUBLE_EQ(products / tokens, flops.causal - 6 * square + padding);
    kinds.tied += m.tied_head ? 1 : 0;
    kinds.ungated += m.is_gated() ? 0 : 1;
    kinds.normed += m.qk_norm ? 1 : 0;
    kinds.padded += padding > 0 ? 1 : 0;
    // Backward recomputes the scores: 7 matmuls instead of 6, and T + 1 keys instead of T.
    EXPECT_DOUBLE_EQ(attention / tokens, 7 * square * (T + 1) / T);
    const auto moments = program.peak_by_purpose[static_cast<std::size_t>(Purpose::moments)];
    EXPECT_GE(moments, 8 * parameter_count(m));
    EXPECT_LT(static_cast<double>(moments), 1.005 * 8 * static_cast<double>(parameter_count(m)));
  }
  for (const int found : {kinds.tied, kinds.ungated, kinds.normed, kinds.padded})
    EXPECT_GE(found, 1);
}

TEST(Plan, every_configuration_is_planned_on_every_cluster) {
  for (const auto& file : std::filesystem::directory_iterator(kConfigs / "clusters"))
    for (const auto& config : std::filesystem::directory_iterator(kConfigs)) {
      if (config.path().extension() != ".toml") continue;
      Cluster cluster = load_cluster(file.path());
      cluster.nodes = 64 / cluster.ranks_per_node;
      const auto c =
          load_config(config.path(),
                      {parse_setting("layout.shard=64"), parse_setting("layout.tensor=1")}, 64)
              .values;
      const auto found = estimate(c, cluster);
      SCOPED_TRACE(config.path().string() + " on " + file.path().string());
      EXPECT_TRUE(std::isfinite(found.time.total()) && found.time.total() > 0);
      EXPECT_GT(found.mfu.causal, 0);
      EXPECT_LT(found.mfu.causal, 1);
      EXPECT_GE(found.mfu.square, found.mfu.causal);
      for (const double seconds : found.time.seconds)
        EXPECT_TRUE(std::isfinite(seconds) && seconds >= 0);
      const auto costs = run_costs(planned_on(cluster, c), cluster, found);
      EXPECT_TRUE(costs.goodput >= 0 && costs.goodput <= 1);
    }
}

// docs/planning.md, "Bands".
TEST(Plan, has_a_band_by_the_number_of_gpus_or_if_cpus_were_measured) {
  const auto gpus = cluster_of_gpus(*find_hardware("NVIDIA H100"), 8, 128);
  for (const auto& [few, more] : {std::pair{8, 9}, {128, 129}})
    EXPECT_FALSE(plan_band(gpus, few).band == plan_band(gpus, more).band) << few;
  for (const int ranks : {1, 8, 9, 128, 129, 131072}) {
    const auto band = plan_band(gpus, ranks).band;
    EXPECT_TRUE(0.8 < band.low && band.low < 1 && 1 < band.high && band.high < 1.3) << ranks;
  }
  EXPECT_FALSE(plan_band(cluster_of_gpus(*find_hardware("NVIDIA B200"), 8), 8).band.is_known())
      << "no published run has this GPU";
  Cluster cpus;
  cpus.device = Device::Kind::cpu;
  EXPECT_FALSE(plan_band(cpus, 4).band.is_known());
  cpus.is_measured = true;
  EXPECT_TRUE(plan_band(cpus, 4).band.is_known());
}

}  // namespace lockstep::testing::plan_test

#include "train/estimate.h"

#include <chrono>
#include <gtest/gtest.h>
#include <numeric>

#include "tests/testing.h"
#include "tests/train/layout_rig.h"
#include "train/cluster_step.h"
#include "train/cluster_topology.h"
#include "train/layout.h"
#include "train/run_state.h"

namespace lockstep::testing {
namespace {

Cluster h100s(int nodes) {
  Cluster cluster;
  cluster.name = "h100s";
  cluster.nodes = nodes;
  cluster.ranks_per_node = 8;
  cluster.hardware = *find_hardware("NVIDIA H100");
  return cluster;
}

Config llama_8b(int ranks) {
  Config config;
  auto& m = config.model;
  m = family_defaults(Family::llama3);
  m.layers = 32;
  m.width = 4096;
  m.heads = 32;
  m.kv_heads = 8;
  m.head_size = 128;
  m.mlp_width = 14336;
  m.vocabulary = 128256;
  m.max_positions = 8192;
  config.precision.compute = DType::bf16;
  config.train.sequence_length = 8192;
  config.train.micro_batch = 1;
  config.train.batch_tokens = std::int64_t{8192} * ranks;
  config.train.recompute = Recompute::block;
  config.layout.ranks = config.layout.shard = ranks;
  return config;
}

TEST(Estimate, times) {
  for (int ranks : {8, 1024}) {
    const auto cluster = h100s(ranks / 8);
    Config c = planned_on(cluster, llama_8b(ranks));
    for (int layers : {2, 4, 32}) {
      c.model.layers = layers;
      using Clock = std::chrono::steady_clock;
      const auto since = [](Clock::time_point t) {
        return 1e3 * std::chrono::duration<double>(Clock::now() - t).count();
      };
      auto t0 = Clock::now();
      const auto training = training_config(c);
      const auto topology = topology_on(cluster, training.mesh);
      const double t1 = since(t0);
      t0 = Clock::now();
      const auto program = record_step(training, Device{cluster.device}, 1, 0, &topology);
      const double t2 = since(t0);
      t0 = Clock::now();
      const auto time = step_time_on(cluster, program);
      const double t3 = since(t0);
      t0 = Clock::now();
      measure_training(training, Device{cluster.device}, 1);
      const double t4 = since(t0);
      std::printf("%d ranks %d layers: topology %.2f ms record %.2f ms (%zu entries) price %.2f ms measure %.2f ms; step %.3f s\n",
                  ranks, layers, t1, t2, program.log->entries().size(), t3, t4, time.total());
    }
  }
}

}  // namespace
}  // namespace lockstep::testing

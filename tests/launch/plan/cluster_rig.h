// Clusters and a small run for tests of plans.
#pragma once

#include "launch/plan/cluster.h"
#include "train/config.h"

namespace lockstep::testing {

inline Cluster h100s(int nodes) {
  Cluster cluster;
  cluster.name = "h100s";
  cluster.nodes = nodes;
  cluster.ranks_per_node = 8;
  cluster.hardware = *find_hardware("NVIDIA H100");
  return cluster;
}

inline Cluster processors(int ranks) {
  Cluster cluster;
  cluster.name = "processors";
  cluster.device = Device::Kind::cpu;
  cluster.ranks_per_node = ranks;
  cluster.constant_bytes = 1;  // measured and negligible; 0 is unknown
  auto& hardware = cluster.hardware;
  hardware.fp32_flops = hardware.bf16_flops = 1e11;
  hardware.hbm_bytes_per_second = hardware.nvlink_bytes_per_second = 1e10;
  hardware.nic_bytes_per_second = 1e9;
  hardware.hbm_bytes = std::int64_t{4} << 30;
  return cluster;
}

// The configuration of a model that trains in a moment.
inline Config small_run(int ranks, int layers = 2) {
  Config config;
  auto& m = config.model;
  m = family_defaults(Family::llama3);
  m.layers = layers;
  m.width = 64;
  m.heads = m.kv_heads = 8;
  m.head_size = 8;
  m.mlp_width = 128;
  m.vocabulary = 256;
  m.max_positions = 64;
  m.rope_scaling.reset();
  config.train.sequence_length = 32;
  config.train.micro_batch = 2;
  config.train.batch_tokens = std::int64_t{8} * 32 * ranks;
  config.train.threads = 1;
  config.layout.ranks = config.layout.shard = ranks;
  return config;
}

}  // namespace lockstep::testing

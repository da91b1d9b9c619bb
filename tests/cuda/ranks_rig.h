// Runs a few steps of a tiny model on rank threads, on CPUs or GPUs, and returns the results.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "dist/nccl_world.h"
#include "tests/support/staged_world.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"
#include "train/step/host_staging.h"
#include "train/step/state_slices.h"
#include "train/step/training.h"

namespace lockstep::testing {

// The transport of tensors between ranks: direct memory access, staging through the host, or NCCL.
// For NCCL each rank needs its own GPU, except that all share the simulated one.
enum class Ways : std::uint8_t { threads, staged, nccl };

inline Device device_of(Ways ways, [[maybe_unused]] int rank) {
  if (ways == Ways::threads) return {};
#ifndef LOCKSTEP_SIMT
  if (ways == Ways::nccl) return {Device::Kind::cuda, static_cast<std::int16_t>(rank)};
#endif
  return {Device::Kind::cuda, 0};
}

inline std::unique_ptr<World> world_of(Ways ways, World& host) {
  if (ways == Ways::staged) return make_staged_world(host);
  if (ways == Ways::nccl) return make_nccl_world(host, device_of(ways, host.rank()));
  return nullptr;
}

struct RanksCase {
  const char* name;
  Family family;
  Mesh mesh;
  Sharding sharding = Sharding::full;
  int per_domain = 0;  // consecutive ranks per NVLink domain; 0: all are in one
  DType compute = DType::fp32;
  Recompute recompute = Recompute::none;
  std::int64_t sequences = 3;  // of a step, each a micro-batch; with two data ranks one is masked
  std::int64_t heads = 2;
  Reduce reduce = Reduce::fp32;
  Fp8Matmuls fp8 = Fp8Matmuls::off;
  std::int64_t chunks = 1;  // of the tokens, of tensor ranks
};

inline TrainingConfig config_of(const RanksCase& c) {
  TrainingConfig config;
  config.model = family_defaults(c.family);
  auto& m = config.model;
  m.layers = 2;
  m.width = 32;
  m.heads = m.kv_heads = c.heads;
  m.head_size = 32 / c.heads;
  m.mlp_width = 48;
  m.vocabulary = 37;
  m.max_positions = 64;
  m.rope_scaling.reset();
  m.init_std = 0.1f;
  config.compute = c.compute;
  config.recompute = c.recompute;
  config.sequence_length = c.chunks > 1 ? 12 : 11;  // padded for two tensor ranks, if one chunk
  config.micro_batch_sequences = 1;
  config.global_batch_sequences = c.sequences;
  config.sample_tokens = 8;
  config.seed = 5;
  config.mesh = c.mesh;
  config.sharding = c.sharding;
  config.reduce = c.reduce;
  config.tensor_chunks = c.chunks;
  if (c.fp8 == Fp8Matmuls::off) return config;
  m.width = 128;
  m.head_size = 128 / c.heads;
  m.mlp_width = 256;
  config.sequence_length = 32;
  config.fp8 = c.fp8;
  config.fp8_gradients = DType::fp8_e5m2;
  return config;
}

inline std::ostream& operator<<(std::ostream& out, const RanksCase& c) {
  return out << c.name;
}

struct RanksOutcome {
  Doubles losses, norms;
  std::vector<std::int64_t> tokens;  // valid ones of each step
  LossSum evaluated;
  std::vector<std::int32_t> sampled;
  std::vector<std::vector<std::byte>> state;  // of each rank: weights and moments
};

// RankRig owns the Training of one rank, its streams and memory.
class RankRig {
 public:
  RankRig(const TrainingConfig& config, Device device, const Arenas::Bytes& bytes, World& world,
          const Topology& topology)
      : config_(config),
        stream_(device, "test"),
        arenas_(device, bytes, world.allocate(bytes.device)),
        training_(config, stream_, arenas_,
                  make_comms(world, config.mesh, &topology, config.reduce)),
        batches_(device, Arena::Memory::pinned_host, 1 << 20) {
    training_.initialize();
  }

  Training& training() { return training_; }

  // The batch of one sequence of a step; sequences after the global batch are masked. Each batch
  // has its own memory, so the host never waits here, and a missing wait between streams shows.
  Batch batch(std::int64_t step, std::int64_t sequence) {
    const bool masked = sequence >= config_.global_batch_sequences;
    const auto T = config_.sequence_length;
    const Tensor all = batches_.allocate("batch", DType::int32, {3, T});
    auto* values = all.as<std::int32_t>();
    for (std::int64_t t = 0; t < T; ++t) {
      const auto token = static_cast<std::int32_t>((step * 7 + sequence * 5 + t * t) % 37);
      const bool counts = !masked && (sequence != 1 || t > 3);
      values[t] = masked ? 0 : token;
      values[T + t] = counts ? (token * 3 + 1) % 37 : -1;
      values[2 * T + t] = static_cast<std::int32_t>(t);
    }
    const auto part = [&](std::int64_t i) { return all.rows(i, 1).view({1, T}); };
    return {.inputs = part(0), .targets = part(1), .positions = part(2), .document_start = {}};
  }

  std::vector<std::byte> state() {
    HostStaging host(state_slices(training_.params(), training_.optimizer()), stream_);
    host.take();
    host.taken().synchronize();
    std::vector<std::byte> bytes;
    for (const auto& slice : host.slices())
      bytes.insert(bytes.end(), slice.local.data, slice.local.data + slice.local.bytes());
    return bytes;
  }

 private:
  TrainingConfig config_;
  Stream stream_;
  Arenas arenas_;
  Training training_;
  Arena batches_;
};

inline RanksOutcome train_on_ranks(const RanksCase& c, Ways ways, int steps) {
  const auto config = config_of(c);
  Topology topology;
  for (int rank = 0; rank < c.mesh.world(); ++rank)
    topology.domain_of.push_back(c.per_domain == 0 ? 0 : rank / c.per_domain);
  RanksOutcome outcome;
  outcome.state.resize(static_cast<std::size_t>(c.mesh.world()));
  const auto bytes = measure_training(config, device_of(ways, 0), 1);
  run_thread_ranks(c.mesh.world(), [&](World& host) {
    const auto own = world_of(ways, host);
    World& world = own ? *own : host;
    RankRig rig(config, device_of(ways, world.rank()), bytes, world, topology);
    auto& training = rig.training();
    const auto tensors = c.mesh.size(Axis::tensor);
    const std::int64_t ranks = c.mesh.world() / tensors, rank = world.rank() / tensors;
    const auto micro_steps = (config.global_batch_sequences + ranks - 1) / ranks;
    const bool first = world.rank() == 0;
    const auto note = [&](int step) {  // as a run does, while the next step is enqueued
      const auto numbers = training.numbers(step);
      if (!first) return;
      outcome.losses.push_back(numbers.loss);
      outcome.norms.push_back(numbers.grad_norm);
      outcome.tokens.push_back(numbers.valid_tokens);
    };
    for (int step = 1; step <= steps; ++step) {
      training.begin_step(step, 3e-3);
      for (std::int64_t m = 0; m < micro_steps; ++m)
        training.micro_step(rig.batch(step, m * ranks + rank), m + 1 == micro_steps);
      training.finish_step();
      if (ways == Ways::threads)
        note(step);  // nothing is copied there
      else if (step > 1)
        note(step - 1);
    }
    if (ways != Ways::threads) note(steps);
    training.evaluate(rig.batch(1, rank));
    const auto evaluated = training.evaluated();
    const auto sampled = training.sample(std::vector<std::int32_t>{1, 2}, 5, {.seed = 3});
    outcome.state[static_cast<std::size_t>(world.rank())] = rig.state();
    if (!first) return;
    outcome.evaluated = evaluated;
    outcome.sampled = sampled;
  });
  return outcome;
}

}  // namespace lockstep::testing

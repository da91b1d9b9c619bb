// A Training of a tiny model, a batch for it, and checks for every Training.
#pragma once

#include <algorithm>

#include "model/families.h"
#include "tests/allocations.h"
#include "tests/testing.h"
#include "train/step/training.h"

namespace lockstep::testing {

// Two layers, 37 tokens, 64 positions; each head has its own keys and values.
inline ModelConfig small_model(Family family, std::int64_t width, std::int64_t heads) {
  ModelConfig m = family_defaults(family);
  m.layers = 2;
  m.width = width;
  m.heads = m.kv_heads = heads;
  m.head_size = width / heads;
  m.mlp_width = 2 * width;
  m.vocabulary = 37;
  m.max_positions = 64;
  m.rope_scaling.reset();
  return m;
}

inline TrainingConfig tiny(DType compute = DType::fp32) {
  TrainingConfig config;
  config.model = small_model(Family::llama3, 32, 4);
  config.model.kv_heads = 2;
  config.model.mlp_width = 48;
  config.compute = compute;
  config.sequence_length = 16;
  config.micro_batch_sequences = 2;
  config.global_batch_sequences = 4;
  config.adamw = {.weight_decay = 0.0f};
  config.seed = 5;
  return config;
}

// A Training with a batch of its own; tokens follow a rule that can be learned.
struct Rig {
  explicit Rig(const TrainingConfig& c) : config(c), training(c, bench.stream, arenas) {
    training.initialize();
    const auto n = c.global_batch_sequences * c.sequence_length;
    std::vector<std::int32_t> ids, next, place, start(static_cast<std::size_t>(n), 0);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto word = [&](std::int64_t j) {
        return static_cast<std::int32_t>(philox(9, 0, static_cast<std::uint64_t>(j))[0] % 37);
      };
      ids.push_back(word(i));
      next.push_back(word(i + 1));
      place.push_back(static_cast<std::int32_t>(i % c.sequence_length));
    }
    const Shape shape{c.global_batch_sequences, c.sequence_length};
    inputs = bench.integers(ids, shape);
    targets = bench.integers(next, shape);
    positions = bench.integers(place, shape);
    document_start = bench.integers(start, shape);
  }

  Batch batch(std::int64_t first, std::int64_t count) const {
    return {.inputs = inputs.rows(first, count),
            .targets = targets.rows(first, count),
            .positions = positions.rows(first, count),
            .document_start = document_start.rows(first, count)};
  }

  Training::Numbers step(std::int64_t number, double rate) {
    training.begin_step(number, rate);
    const auto B = config.micro_batch_sequences;
    for (std::int64_t first = 0; first < config.global_batch_sequences; first += B)
      training.micro_step(batch(first, B));
    training.finish_step();
    return training.numbers(number);
  }

  Doubles gradients() {
    Doubles all;
    for (const auto& shard : training.params().shards())
      for (const double g : doubles(shard.grad))
        all.push_back(g);
    return all;
  }
  Doubles weights() {
    Doubles all;
    for (const auto& shard : training.params().shards())
      for (const double w : doubles(shard.master ? shard.master : shard.weight))
        all.push_back(w);
    return all;
  }

  TrainingConfig config;
  Bench bench;
  Arenas arenas{Device{}, {.device = std::int64_t{256} << 20}};
  Training training;
  Tensor inputs, targets, positions, document_start;
};

// All fp8 weights that this rank multiplies by, and their scales.
inline std::vector<std::byte> fp8_copies(ParamStore& params, Stream& stream) {
  std::vector<std::byte> bytes;
  for (int unit = 0; unit < params.units(); ++unit) {
    const auto use = params.use(unit, stream);
    for (int i = 0; i < static_cast<int>(params.layout().specs(unit).size()); ++i) {
      const auto q = use.quantized({unit, i});
      if (!q.weight) continue;
      for (const ConstTensor& t :
           {q.weight.q, q.weight.scales, q.transposed.q, q.transposed.scales})
        bytes.insert(bytes.end(), t.data, t.data + t.bytes());
    }
  }
  return bytes;
}

inline void expect_recompute_is_exact(TrainingConfig config, int steps) {
  Doubles expected;
  for (const auto recompute : {Recompute::none, Recompute::cheap, Recompute::block}) {
    config.recompute = recompute;
    Rig rig(config);
    for (int i = 1; i <= steps; ++i)
      rig.step(i, 1e-2);
    if (recompute == Recompute::none) expected = rig.weights();
    EXPECT_EQ(rig.weights(), expected) << static_cast<int>(recompute);
  }
}

inline void expect_the_measured_bytes_are_used(const TrainingConfig& config) {
  const auto measured = measure_training(config, Device{}, 2);
  Stream stream(Device{}, "test", Stream::Mode::immediate, 2);
  Arenas arenas(Device{}, measured);
  Training training(config, stream, arenas);
  training.initialize();
  const Rig source(config);  // for its batch
  training.begin_step(1, 1e-3);
  training.micro_step(source.batch(0, 2));
  training.finish_step();
  training.evaluate(source.batch(0, 2));
  EXPECT_EQ(arenas.peak().device, measured.device);
  EXPECT_EQ(measured.pinned, 0);
}

inline void expect_a_step_allocates_nothing_from_the_heap(const TrainingConfig& config) {
  Rig rig(config);
  const auto first = rig.batch(0, 2), second = rig.batch(2, 2);
  const auto step = [&](std::int64_t number) {
    rig.training.begin_step(number, 1e-3);
    rig.training.micro_step(first);
    rig.training.micro_step(second);
    rig.training.finish_step();
    return rig.training.numbers(number).applied;
  };
  EXPECT_TRUE(step(1));
  const auto before = allocations();
  EXPECT_TRUE(step(2));
  EXPECT_EQ(allocations() - before, 0);
}

}  // namespace lockstep::testing

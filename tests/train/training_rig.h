// A Training of a tiny model, and a batch for it.
#pragma once

#include <algorithm>

#include "tests/testing.h"
#include "train/training.h"

namespace lockstep::testing {

inline TrainingConfig tiny(DType compute = DType::fp32) {
  TrainingConfig config;
  config.model = family_defaults(Family::llama3);
  config.model.layers = 2;
  config.model.width = 32;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.head_size = 8;
  config.model.mlp_width = 48;
  config.model.vocabulary = 37;
  config.model.max_positions = 64;
  config.model.rope_scaling.reset();
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

}  // namespace lockstep::testing

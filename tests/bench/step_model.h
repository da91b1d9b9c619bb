// What benchmarks of whole steps share: models, random tokens, times.
#pragma once

#include <algorithm>
#include <chrono>
#include <string_view>
#include <vector>

#include "core/philox.h"
#include "train/step/training.h"

namespace lockstep::bench {

inline ModelConfig model_of(std::string_view name) {
  ModelConfig m = family_defaults(name == "quickstart" ? Family::llama3 : Family::gpt2);
  const auto sizes = [&m](int layers, int width, int heads, int mlp, int vocabulary) {
    m.layers = layers;
    m.width = width;
    m.heads = m.kv_heads = heads;
    m.head_size = width / heads;
    m.mlp_width = mlp;
    m.vocabulary = vocabulary;
    m.max_positions = 1024;
  };
  if (name == "byte_10m")
    sizes(6, 384, 6, 1536, 257);
  else if (name == "quickstart")
    sizes(4, 256, 4, 683, 257);
  else
    sizes(12, 768, 12, 3072, 50257);
  return m;
}

inline double seconds_of(auto&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

inline Batch random_batch(Arena& arena, const TrainingConfig& c) {
  const Shape shape{c.micro_batch_sequences, c.sequence_length};
  const auto ids = [&](std::uint64_t purpose) {
    const auto t = arena.allocate("ids", DType::int32, shape);
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.as<std::int32_t>()[i] = static_cast<std::int32_t>(
          philox(1, purpose, static_cast<std::uint64_t>(i))[0] % c.model.vocabulary);
    return t;
  };
  Batch batch{.inputs = ids(1), .targets = ids(2), .positions = ids(3), .document_start = ids(4)};
  const auto positions = arena.allocate("positions", DType::int32, shape);
  const auto start = arena.allocate("document_start", DType::int32, shape);
  for (std::int64_t i = 0; i < positions.elements(); ++i) {
    positions.as<std::int32_t>()[i] = static_cast<std::int32_t>(i % c.sequence_length);
    start.as<std::int32_t>()[i] = 0;
  }
  batch.positions = positions;
  batch.document_start = start;
  return batch;
}

}  // namespace lockstep::bench

// The five families in their published sizes, with the values of their config.json.
#pragma once

#include <array>

#include "model/config.h"

namespace lockstep::testing {

inline ModelConfig sized(Family family, const ModelConfig& sizes) {
  auto c = family_defaults(family);
  c.layers = sizes.layers;
  c.width = sizes.width;
  c.heads = sizes.heads;
  c.kv_heads = sizes.kv_heads;
  c.head_size = sizes.head_size;
  c.mlp_width = sizes.mlp_width;
  c.vocabulary = sizes.vocabulary;
  c.max_positions = sizes.max_positions;
  return c;
}

// layers, width, heads, key/value heads, head size, mlp width, vocabulary, positions
using ModelSizes = std::array<std::int64_t, 8>;
inline ModelConfig sized(Family family, const ModelSizes& s) {
  return sized(family, {.layers = s[0],
                        .width = s[1],
                        .heads = s[2],
                        .kv_heads = s[3],
                        .head_size = s[4],
                        .mlp_width = s[5],
                        .vocabulary = s[6],
                        .max_positions = s[7]});
}

inline ModelConfig gpt2_124m() {
  return sized(Family::gpt2, ModelSizes{12, 768, 12, 12, 64, 3072, 50257, 1024});
}
inline ModelConfig llama3_8b() {
  auto c = sized(Family::llama3, ModelSizes{32, 4096, 32, 8, 128, 14336, 128256, 131072});
  c.rope_scaling = RopeScaling{};
  return c;
}
inline ModelConfig qwen2_05b() {
  auto c = sized(Family::qwen2, ModelSizes{24, 896, 14, 2, 64, 4864, 151936, 32768});
  c.tied_head = true;
  return c;
}
inline ModelConfig qwen3_06b() {
  auto c = sized(Family::qwen3, ModelSizes{28, 1024, 16, 8, 128, 3072, 151936, 40960});
  c.tied_head = true;
  return c;
}
inline ModelConfig smollm3_3b() {
  return sized(Family::smollm3, ModelSizes{36, 2048, 16, 4, 128, 11008, 128256, 65536});
}

}  // namespace lockstep::testing

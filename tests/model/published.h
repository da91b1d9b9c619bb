// The five families in their published sizes, as their config.json says.
#pragma once

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

inline ModelConfig gpt2_124m() {
  return sized(Family::gpt2, {.layers = 12,
                              .width = 768,
                              .heads = 12,
                              .kv_heads = 12,
                              .head_size = 64,
                              .mlp_width = 3072,
                              .vocabulary = 50257,
                              .max_positions = 1024});
}

inline ModelConfig llama3_8b() {
  auto c = sized(Family::llama3, {.layers = 32,
                                  .width = 4096,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .head_size = 128,
                                  .mlp_width = 14336,
                                  .vocabulary = 128256,
                                  .max_positions = 131072});
  c.rope_scaling = RopeScaling{};
  return c;
}

inline ModelConfig qwen2_05b() {
  auto c = sized(Family::qwen2, {.layers = 24,
                                 .width = 896,
                                 .heads = 14,
                                 .kv_heads = 2,
                                 .head_size = 64,
                                 .mlp_width = 4864,
                                 .vocabulary = 151936,
                                 .max_positions = 32768});
  c.tied_head = true;
  return c;
}

inline ModelConfig qwen3_06b() {
  auto c = sized(Family::qwen3, {.layers = 28,
                                 .width = 1024,
                                 .heads = 16,
                                 .kv_heads = 8,
                                 .head_size = 128,
                                 .mlp_width = 3072,
                                 .vocabulary = 151936,
                                 .max_positions = 40960});
  c.tied_head = true;
  return c;
}

inline ModelConfig smollm3_3b() {
  return sized(Family::smollm3, {.layers = 36,
                                 .width = 2048,
                                 .heads = 16,
                                 .kv_heads = 4,
                                 .head_size = 128,
                                 .mlp_width = 11008,
                                 .vocabulary = 128256,
                                 .max_positions = 65536});
}

}  // namespace lockstep::testing

// ModelConfig describes a model as data. One decoder covers five families; the members state their
// differences.
//
// Dimensions: L layers, D width, H query heads, G key/value heads, K head size, F mlp width,
// V vocabulary, T sequence length.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/rope.h"

namespace lockstep {

// Upper bounds of sizes, far above any model: they keep every product of sizes within 64 bits.
constexpr std::int64_t kMostLayers = 1 << 12, kMostWidth = 1 << 20, kMostHeads = 1 << 12,
                       kMostHeadSize = 1 << 12, kMostMlpWidth = 1 << 22, kMostVocabulary = 1 << 26,
                       kMostPositions = 1 << 30;

enum class Family : std::uint8_t { gpt2, llama3, qwen2, qwen3, smollm3 };

const char* name(Family family);

struct ModelConfig {
  enum class Norm : std::uint8_t { layer, rms };
  // gelu is the tanh form, in an mlp of two matrices.
  enum class Activation : std::uint8_t { gelu, swiglu };

  Family family = Family::llama3;
  std::int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, head_size = 0, mlp_width = 0;
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;  // maximum sequence length; rows of a learned position table

  Norm norm = Norm::rms;
  float norm_epsilon = 1e-5f;
  Activation activation = Activation::swiglu;
  bool learned_positions = false;  // GPT-2's table, added to the embedding; otherwise RoPE
  float rope_theta = 10000.0f;
  std::optional<RopeScaling> rope_scaling = std::nullopt;
  std::int64_t no_rope_every = 0;  // layer l has no RoPE if (l + 1) % this == 0; 0: all have it
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool qk_norm = false;
  bool tied_head = false;

  float init_std = 0.02f;
  bool scale_residual_init = false;  // projections into the residual stream: std / sqrt(2L)

  bool has_rope(std::int64_t layer) const;
  bool is_gated() const { return activation == Activation::swiglu; }
  std::int64_t qkv_heads() const { return heads + 2 * kv_heads; }
  std::int64_t attention_width() const { return heads * head_size; }  // H K

  // Standard deviation of a projection into the residual stream (attention's and the mlp's last
  // matrix). GPT-2: Radford et al. 2019, section 2.3; SmolLM3: nanotron's StandardParametrizator;
  // init_std itself in the other families.
  float residual_init_std() const;

  // Throws ConfigError that names the key and says what it must be. Every model that passes can be
  // exported to Hugging Face's form of its family.
  void validate() const;

  bool operator==(const ModelConfig&) const;
};

// Throws ConfigError if the tensor axis does not divide heads, kv heads or mlp width. The error
// lists the sizes that work.
void require_divisible(const ModelConfig& config, std::int64_t tensor_ranks);

// The values that all published models of a family share: every member that is not a size.
ModelConfig family_defaults(Family family);

// Number of trained values; a tied head counts once.
std::int64_t parameter_count(const ModelConfig& config);

// Number of weights used in matmuls: the head counts, lookup tables do not.
std::int64_t matmul_parameters(const ModelConfig& config);

// Training FLOPs of one token: 6 for each weight of matmul_parameters, plus attention. Attention
// takes 6 L H K T (causal), because a token attends to half of T on average. Over the full square
// it takes 12 L H K T, as PaLM counts (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).
struct FlopsPerToken {
  double causal = 0, square = 0;
  double layer_products = 0;  // part of both: matmuls with the matrices of the layers
};
FlopsPerToken flops_per_token(const ModelConfig& config, std::int64_t sequence_length);

}  // namespace lockstep

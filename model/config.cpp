#include "model/config.h"

#include <cmath>

#include "core/error.h"

namespace lockstep {
namespace {

template <class... Args>
void require(bool condition, const Args&... what) {
  if (!condition) throw ConfigError(str("model.", what...));
}

void check_sizes(const ModelConfig& c) {
  const auto between = [](const char* key, std::int64_t value, std::int64_t most) {
    require(1 <= value && value <= most, key, " is ", value, ", expected 1 to ", most);
  };
  between("layers", c.layers, kMostLayers);
  between("width", c.width, kMostWidth);
  between("heads", c.heads, kMostHeads);
  between("kv_heads", c.kv_heads, kMostHeads);
  between("head_size", c.head_size, kMostHeadSize);
  between("mlp_width", c.mlp_width, kMostMlpWidth);
  between("vocabulary", c.vocabulary, kMostVocabulary);
  between("max_positions", c.max_positions, kMostPositions);
  require(c.heads % c.kv_heads == 0, "kv_heads is ", c.kv_heads, ", expected a divisor of heads (",
          c.heads, "), so that query heads share key/value heads evenly");
}

void check_rope(const ModelConfig& c) {
  require(c.head_size % 2 == 0, "head_size is ", c.head_size,
          ", expected an even number, because RoPE rotates pairs");
  require(c.rope_theta > 1 && std::isfinite(c.rope_theta), "rope_theta is ", c.rope_theta,
          ", expected more than 1, such as 10000");
  require(c.no_rope_every >= 0, "no_rope_every is ", c.no_rope_every, ", expected 0 or more");
  if (!c.rope_scaling) return;
  const auto& s = *c.rope_scaling;
  require(s.factor >= 1 && std::isfinite(s.factor), "rope_scaling.factor is ", s.factor,
          ", expected 1 or more");
  require(0 < s.low_factor && s.low_factor < s.high_factor, "rope_scaling.low_factor is ",
          s.low_factor, ", expected more than 0 and less than high_factor (", s.high_factor, ")");
  require(s.original_context > 0, "rope_scaling.original_context is ", s.original_context,
          ", expected at least 1");
}

// Rejects settings that a family's Hugging Face architecture cannot express, so that every model
// that trains can be exported.
void check_family(const ModelConfig& c) {
  const auto defaults = family_defaults(c.family);
  const auto as_in_family = [&](bool same, const char* key) {
    require(same, key, " differs from what the family ", name(c.family), " has");
  };
  as_in_family(c.norm == defaults.norm, "norm");
  as_in_family(c.activation == defaults.activation, "activation");
  as_in_family(c.learned_positions == defaults.learned_positions, "learned_positions");
  as_in_family(c.qk_norm == defaults.qk_norm, "qk_norm");
  as_in_family(c.no_rope_every == 0 || c.family == Family::smollm3, "no_rope_every");
  if (c.family == Family::gpt2 || c.family == Family::qwen2) {
    as_in_family(c.qkv_bias == defaults.qkv_bias, "qkv_bias");
    as_in_family(c.out_bias == defaults.out_bias, "out_bias");
  } else {
    require(c.qkv_bias == c.out_bias, "out_bias differs from qkv_bias; the family ", name(c.family),
            " has one switch for both");
  }
  if (c.family != Family::llama3 && c.family != Family::smollm3)
    as_in_family(c.mlp_bias == defaults.mlp_bias, "mlp_bias");
  require(c.family != Family::llama3 || c.width % c.heads == 0, "width is ", c.width,
          ", expected a multiple of heads (", c.heads,
          ") in the family llama3, because `transformers` loads no other, whatever the head size");
  if (c.family != Family::gpt2) return;
  require(c.kv_heads == c.heads, "kv_heads is ", c.kv_heads, ", expected heads (", c.heads,
          ") in the family gpt2");
  require(c.attention_width() == c.width, "head_size is ", c.head_size,
          ", expected width / heads (", c.width, " / ", c.heads, ") in the family gpt2");
}

std::int64_t norm_parameters(const ModelConfig& c) {
  return c.norm == ModelConfig::Norm::layer ? 2 * c.width : c.width;
}

// Number of weights in the matrices of one layer: q, k, v, out; gate, up, down or up, down.
std::int64_t layer_matmul_parameters(const ModelConfig& c) {
  const auto attention = c.width * c.head_size * (c.qkv_heads() + c.heads);
  return attention + (c.is_gated() ? 3 : 2) * c.width * c.mlp_width;
}

std::int64_t layer_vector_parameters(const ModelConfig& c) {
  std::int64_t n = 2 * norm_parameters(c);
  if (c.qkv_bias) n += c.qkv_heads() * c.head_size;
  if (c.out_bias) n += c.width;
  if (c.mlp_bias) n += (c.is_gated() ? 2 : 1) * c.mlp_width + c.width;
  if (c.qk_norm) n += 2 * c.head_size;
  return n;
}

}  // namespace

const char* name(Family family) {
  switch (family) {
    case Family::gpt2: return "gpt2";
    case Family::llama3: return "llama3";
    case Family::qwen2: return "qwen2";
    case Family::qwen3: return "qwen3";
    case Family::smollm3: return "smollm3";
  }
  return "?";
}

bool ModelConfig::has_rope(std::int64_t layer) const {
  return !learned_positions && (no_rope_every == 0 || (layer + 1) % no_rope_every != 0);
}

float ModelConfig::residual_init_std() const {
  return scale_residual_init ? init_std / std::sqrt(2.0f * static_cast<float>(layers)) : init_std;
}

bool ModelConfig::operator==(const ModelConfig&) const = default;

void ModelConfig::validate() const {
  check_sizes(*this);
  check_family(*this);
  require(norm_epsilon > 0 && std::isfinite(norm_epsilon), "norm_epsilon is ", norm_epsilon,
          ", expected a small positive number, such as 1e-5");
  require(init_std >= 0 && std::isfinite(init_std), "init_std is ", init_std,
          ", expected 0 or more, such as 0.02");
  if (!learned_positions) check_rope(*this);
}

void require_divisible(const ModelConfig& config, std::int64_t tensor_ranks) {
  const auto divides = [&](std::int64_t t) {
    return config.heads % t == 0 && config.kv_heads % t == 0 && config.mlp_width % t == 0;
  };
  if (divides(tensor_ranks)) return;
  std::string sizes;
  for (std::int64_t t = 1; t <= config.kv_heads; ++t)
    if (divides(t)) sizes += (sizes.empty() ? "" : ", ") + std::to_string(t);
  throw ConfigError(str("layout.tensor is ", tensor_ranks, ", which does not divide model.heads (",
                        config.heads, "), model.kv_heads (", config.kv_heads,
                        ") and model.mlp_width (", config.mlp_width, "); these do: ", sizes));
}

ModelConfig family_defaults(Family family) {
  ModelConfig c;
  c.family = family;
  switch (family) {
    case Family::gpt2:
      c.norm = ModelConfig::Norm::layer;
      c.activation = ModelConfig::Activation::gelu;
      c.learned_positions = c.tied_head = c.scale_residual_init = true;
      c.qkv_bias = c.out_bias = c.mlp_bias = true;
      break;
    case Family::llama3: c.rope_theta = 500000.0f; break;
    case Family::qwen2:
      c.norm_epsilon = 1e-6f;
      c.rope_theta = 1e6f;
      c.qkv_bias = true;
      break;
    case Family::qwen3:
      c.norm_epsilon = 1e-6f;
      c.rope_theta = 1e6f;
      c.qk_norm = true;
      break;
    case Family::smollm3:
      c.norm_epsilon = 1e-6f;
      c.rope_theta = 5e6f;
      c.no_rope_every = 4;
      c.tied_head = c.scale_residual_init = true;
      break;
  }
  return c;
}

std::int64_t parameter_count(const ModelConfig& c) {
  const auto tables = c.vocabulary * c.width * (c.tied_head ? 1 : 2) +
                      (c.learned_positions ? c.max_positions * c.width : 0);
  return tables + c.layers * (layer_matmul_parameters(c) + layer_vector_parameters(c)) +
         norm_parameters(c);
}

std::int64_t matmul_parameters(const ModelConfig& c) {
  return c.layers * layer_matmul_parameters(c) + c.vocabulary * c.width;
}

FlopsPerToken flops_per_token(const ModelConfig& c, std::int64_t sequence_length) {
  const auto products = 6.0 * static_cast<double>(matmul_parameters(c));
  const auto attention = 6.0 * static_cast<double>(c.layers * c.attention_width()) *
                         static_cast<double>(sequence_length);
  return {.causal = products + attention,
          .square = products + 2 * attention,
          .layer_products = 6.0 * static_cast<double>(c.layers * layer_matmul_parameters(c))};
}

}  // namespace lockstep

#include "model/families.h"

#include <algorithm>
#include <charconv>

namespace lockstep {
namespace {

// TensorList lists the tensors of one model in order; it adds weights and biases of a name as the
// family has them.
class TensorList {
 public:
  void add(const std::string& name, const Shape& shape) {
    list_.push_back({name, shape, false, {name}});
  }
  // Adds a matrix [outputs, inputs] and its bias, if it has one.
  void add_linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias) {
    add(name + ".weight", {outputs, inputs});
    if (bias) add(name + ".bias", {outputs});
  }
  void add_norm(const std::string& name, const ModelConfig& c) {
    add(name + ".weight", {c.width});
    if (c.norm == ModelConfig::Norm::layer) add(name + ".bias", {c.width});
  }
  // Adds GPT-2's Conv1D: [inputs, outputs], several parameters side by side.
  void add_conv1d(const std::string& name, const std::vector<std::string>& parts,
                  std::int64_t outputs, std::int64_t inputs) {
    HuggingFaceTensor weight{name + ".weight", {inputs, outputs}, true, {}};
    HuggingFaceTensor bias{name + ".bias", {outputs}, false, {}};
    for (const auto& part : parts) {
      weight.parameters.push_back(part + ".weight");
      bias.parameters.push_back(part + ".bias");
    }
    list_.push_back(std::move(weight));
    list_.push_back(std::move(bias));
  }
  std::vector<HuggingFaceTensor> take() { return std::move(list_); }

 private:
  std::vector<HuggingFaceTensor> list_;
};

void add_gpt2_layer(TensorList& list, const ModelConfig& c, const LayerNames& n) {
  const auto c_attn = n.q.substr(0, n.q.rfind('.'));  // "...attn.c_attn.q"
  list.add_norm(n.norm1, c);
  list.add_conv1d(c_attn, {n.q, n.k, n.v}, 3 * c.width, c.width);
  list.add_conv1d(n.out, {n.out}, c.width, c.width);
  list.add_norm(n.norm2, c);
  list.add_conv1d(n.up, {n.up}, c.mlp_width, c.width);
  list.add_conv1d(n.down, {n.down}, c.width, c.mlp_width);
}

void add_llama_layer(TensorList& list, const ModelConfig& c, const LayerNames& n) {
  const auto q_width = c.attention_width(), kv_width = c.kv_heads * c.head_size;
  list.add_linear(n.q, q_width, c.width, c.qkv_bias);
  list.add_linear(n.k, kv_width, c.width, c.qkv_bias);
  list.add_linear(n.v, kv_width, c.width, c.qkv_bias);
  list.add_linear(n.out, c.width, q_width, c.out_bias);
  if (c.qk_norm) {
    list.add(n.q_norm + ".weight", {c.head_size});
    list.add(n.k_norm + ".weight", {c.head_size});
  }
  list.add_linear(n.gate, c.mlp_width, c.width, c.mlp_bias);
  list.add_linear(n.up, c.mlp_width, c.width, c.mlp_bias);
  list.add_linear(n.down, c.width, c.mlp_width, c.mlp_bias);
  list.add_norm(n.norm1, c);
  list.add_norm(n.norm2, c);
}

}  // namespace

ModelNames model_names(Family family) {
  if (family == Family::gpt2)
    return {"transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head"};
  return {"model.embed_tokens", "", "model.norm", "lm_head"};
}

LayerNames layer_names(Family family, std::int64_t layer) {
  if (family == Family::gpt2) {
    const auto p = str("transformer.h.", layer, ".");
    return {.norm1 = p + "ln_1",
            .q = p + "attn.c_attn.q",
            .k = p + "attn.c_attn.k",
            .v = p + "attn.c_attn.v",
            .q_norm = "",
            .k_norm = "",
            .out = p + "attn.c_proj",
            .norm2 = p + "ln_2",
            .gate = "",
            .up = p + "mlp.c_fc",
            .down = p + "mlp.c_proj"};
  }
  const auto p = str("model.layers.", layer, ".");
  return {.norm1 = p + "input_layernorm",
          .q = p + "self_attn.q_proj",
          .k = p + "self_attn.k_proj",
          .v = p + "self_attn.v_proj",
          .q_norm = p + "self_attn.q_norm",
          .k_norm = p + "self_attn.k_norm",
          .out = p + "self_attn.o_proj",
          .norm2 = p + "post_attention_layernorm",
          .gate = p + "mlp.gate_proj",
          .up = p + "mlp.up_proj",
          .down = p + "mlp.down_proj"};
}

std::vector<HuggingFaceTensor> huggingface_tensors(const ModelConfig& c) {
  const auto names = model_names(c.family);
  TensorList list;
  list.add(names.embedding + ".weight", {c.vocabulary, c.width});
  if (c.learned_positions) list.add(names.positions + ".weight", {c.max_positions, c.width});
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    const auto layer_of = layer_names(c.family, layer);
    if (c.family == Family::gpt2)
      add_gpt2_layer(list, c, layer_of);
    else
      add_llama_layer(list, c, layer_of);
  }
  list.add_norm(names.final_norm, c);
  if (!c.tied_head) list.add(names.head + ".weight", {c.vocabulary, c.width});
  return list.take();
}

std::string listed_name(Family family, std::string_view stored) {
  const auto prefix_with = [&](const char* prefix, std::initializer_list<std::string_view> starts) {
    const bool is_bare = std::any_of(starts.begin(), starts.end(),
                                     [&](auto start) { return stored.starts_with(start); });
    return (is_bare ? prefix : "") + std::string(stored);
  };
  if (family == Family::gpt2) return prefix_with("transformer.", {"h.", "wte.", "wpe.", "ln_f."});
  return prefix_with("model.", {"embed_tokens.", "layers.", "norm.", "rotary_emb."});
}

std::optional<ModelBuffer> model_buffer(const ModelConfig& config, std::string_view stored) {
  const bool is_gpt2 = config.family == Family::gpt2;
  const auto name = listed_name(config.family, stored);
  if (!is_gpt2 && name == "model.rotary_emb.inv_freq") return ModelBuffer::rope_frequencies;
  const std::string_view layers = is_gpt2 ? "transformer.h." : "model.layers.";
  if (!name.starts_with(layers)) return std::nullopt;
  std::int64_t layer = -1;
  const char* end = name.data() + name.size();
  const auto number = std::from_chars(name.data() + layers.size(), end, layer);
  if (number.ec != std::errc() || layer < 0 || layer >= config.layers) return std::nullopt;
  const std::string_view rest(number.ptr, static_cast<std::size_t>(end - number.ptr));
  if (is_gpt2 && rest == ".attn.bias") return ModelBuffer::causal_mask;
  if (is_gpt2 && rest == ".attn.masked_bias") return ModelBuffer::masked_score;
  if (!is_gpt2 && rest == ".self_attn.rotary_emb.inv_freq") return ModelBuffer::rope_frequencies;
  return std::nullopt;
}

}  // namespace lockstep

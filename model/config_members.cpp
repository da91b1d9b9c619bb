#include "model/config_members.h"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

// A member that must have one of the values `accepted` (a JSON array) if it is present.
struct FixedMember {
  const char* key;
  unsigned families;
  const char* accepted;
  const char* advice;
};
constexpr unsigned bit(Family family) {
  return 1U << static_cast<unsigned>(family);
}
constexpr unsigned kGpt2 = bit(Family::gpt2), kAll = (bit(Family::smollm3) << 1) - 1,
                   kRope = kAll & ~kGpt2, kUnwindowed = kGpt2 | bit(Family::llama3);
constexpr FixedMember kFixedMembers[] = {
    {"is_causal", kAll, "[true]", "Choose a model in which tokens attend to earlier tokens only."},
    {"activation_function", kGpt2,
     R"(["gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh"])",
     "Choose a model with the tanh form of GELU."},
    {"hidden_act", kRope, R"(["silu", "swish"])", "Choose a model with SwiGLU."},
    {"scale_attn_weights", kGpt2, "[true]", "Choose a model with scaled attention."},
    {"scale_attn_by_inverse_layer_idx", kGpt2, "[false]",
     "Choose a model with the same attention scale in every layer."},
    {"add_cross_attention", kGpt2, "[false]", "Choose a model without an encoder."},
    {"partial_rotary_factor", kRope, "[1, null]", "Choose a model that rotates whole heads."},
    {"sliding_window", kUnwindowed, "[null]",
     "Set it to null if every token attends to all earlier tokens."},
    {"attention_chunk_size", kUnwindowed, "[null]",
     "Set it to null if every token attends to all earlier tokens."},
    {"attribute_map", kGpt2,
     R"([{"hidden_size": "n_embd", "max_position_embeddings": "n_positions",
          "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}])",
     "Remove the member, and give each setting its usual name."},
    {"attribute_map", kRope, "[{}]", "Remove the member, and give each setting its usual name."},
    {"per_layer_config", kAll, "[null, {}]", "Choose a model whose layers are alike."},
    {"kv_sharing_modes", kAll, "[null, []]", "Choose a model whose layers are alike."},
    {"text_config", kAll, "[null]", "Export the language model to a directory of its own."},
    {"decoder", kAll, "[null]", "Export the language model to a directory of its own."},
    {"generator", kAll, "[null]", "Export the language model to a directory of its own."},
    {"configuration_files", kAll, "[null, []]",
     "Remove the member if this file describes the weights beside it."},
    {"transformers_weights", kAll, "[null]",
     "Rename that file to model.safetensors, and remove the member."},
};

}  // namespace

void Keys::refuse(const char* key, const std::string& expected, const Json* got,
                  const std::string& advice) const {
  constexpr std::size_t kShown = 300;
  auto text = got == nullptr ? "nothing" : got->dump();
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  throw DataError(str(file_, ": ", key, ": expected ", expected, ", got ", text,
                      advice.empty() ? "" : ". ", advice));
}

std::int64_t Keys::integer(const char* key) const {
  const Json& value = needed(key, "an integer");
  if (value.is_integer()) return value.as_integer();
  const double number = value.is_number() ? value.as_double() : 0.5;
  if (number != std::trunc(number) || std::abs(number) >= 0x1p63) refuse(key, "an integer", &value);
  return static_cast<std::int64_t>(number);
}

const Json& Keys::needed(const char* key, const char* expected) const {
  const Json* value = find(key);
  if (value == nullptr)
    throw DataError(
        str(file_, ": ", key, ": missing; expected ", expected,
            ". Copy the member from the config.json that the model was published with"));
  return *value;
}

bool is_same(const Json& a, const Json& b) {
  return a.is_number() && b.is_number() ? a.as_double() == b.as_double() : a.dump() == b.dump();
}

void check_fixed_members(const Keys& keys, Family family) {
  for (const auto& fixed : kFixedMembers) {
    const Json* value = keys.find(fixed.key);
    if (value == nullptr || (fixed.families & bit(family)) == 0) continue;
    const auto accepted = Json::parse(fixed.accepted, fixed.key).as_array();
    if (std::any_of(accepted.begin(), accepted.end(),
                    [&](const Json& one) { return is_same(*value, one); }))
      continue;
    std::string expected;
    for (const auto& one : accepted)
      expected += (expected.empty() ? "" : " or ") + one.dump();
    keys.refuse(fixed.key, expected, value, fixed.advice);
  }
}

}  // namespace lockstep

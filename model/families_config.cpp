// Hugging Face's config.json, read and written. A key that is absent has the value that the
// family's configuration class in `transformers` gives it.
#include <algorithm>
#include <charconv>
#include <utility>

#include "model/families.h"

namespace lockstep {
namespace {

// Reads keys of an object; null counts as absent, and every message names the file and the key.
class Keys {
 public:
  Keys(const Json& json, std::string file) : json_(json), file_(std::move(file)) {
    if (!json.is_object()) throw DataError(str(file_, ": expected a JSON object"));
  }
  const Json* find(const char* key) const {
    const Json* value = json_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  bool has(const char* key) const { return json_.find(key) != nullptr; }  // null, too
  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw DataError(str(file_, ": ", key, ": ", what));
  }
  std::int64_t integer(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) fail(key, "missing");
    if (!value->is_integer()) fail(key, "expected an integer");
    return value->as_integer();
  }
  std::int64_t integer(const char* key, std::int64_t otherwise) const {
    return find(key) == nullptr ? otherwise : integer(key);
  }
  float number(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) fail(key, "missing");
    if (!value->is_number()) fail(key, "expected a number");
    return static_cast<float>(value->as_double());
  }
  float number(const char* key, double otherwise) const {
    return find(key) == nullptr ? static_cast<float>(otherwise) : number(key);
  }
  bool flag(const char* key, bool otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_bool()) fail(key, "expected true or false");
    return value->as_bool();
  }
  std::string text(const char* key, const char* otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) fail(key, "expected a string");
    return value->as_string();
  }
  void must_be(const char* key, bool expected) const {
    if (flag(key, expected) != expected)
      fail(key, str("is ", expected ? "false" : "true", ", which this engine does not compute"));
  }
  void must_be_one_of(const char* key, std::initializer_list<std::string_view> supported) const {
    const auto value = text(key, std::string(*supported.begin()).c_str());
    if (std::find(supported.begin(), supported.end(), value) != supported.end()) return;
    fail(key, str("is '", value, "', supported is '", *supported.begin(), "'"));
  }
  const std::string& file() const { return file_; }

 private:
  const Json& json_;
  std::string file_;
};

struct FamilyEntry {
  Family family;
  const char* model_type;
  const char* architecture;
  // Where config.json has none:
  double rope_theta;
  bool tied_head;
  std::int64_t kv_heads;  // 0: as many as heads, which null means in every family
};
constexpr FamilyEntry kEntries[] = {
    {Family::gpt2, "gpt2", "GPT2LMHeadModel", 10000, true, 0},
    {Family::llama3, "llama", "LlamaForCausalLM", 10000, false, 0},
    {Family::qwen2, "qwen2", "Qwen2ForCausalLM", 10000, false, 32},
    {Family::qwen3, "qwen3", "Qwen3ForCausalLM", 10000, false, 32},
    {Family::smollm3, "smollm3", "SmolLM3ForCausalLM", 2000000, true, 4},
};

const FamilyEntry& entry_of(const Keys& keys) {
  const auto type = keys.text("model_type", "");
  for (const auto& entry : kEntries)
    if (type == entry.model_type) return entry;
  keys.fail("model_type", str("is '", type, "', supported are gpt2, llama, qwen2, qwen3, smollm3"));
}

ModelConfig read_gpt2(const Keys& keys) {
  auto c = family_defaults(Family::gpt2);
  c.layers = keys.integer("n_layer");
  c.width = keys.integer("n_embd");
  c.heads = c.kv_heads = keys.integer("n_head");
  c.head_size = c.heads > 0 ? c.width / c.heads : 0;
  c.mlp_width = keys.integer("n_inner", 4 * std::clamp<std::int64_t>(c.width, 0, 1 << 20));
  c.max_positions = keys.integer("n_positions");
  c.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5);
  keys.must_be_one_of("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.must_be("scale_attn_weights", true);
  keys.must_be("scale_attn_by_inverse_layer_idx", false);
  keys.must_be("add_cross_attention", false);
  return c;
}

// Both of config.json's forms: rope_theta and rope_scaling, or all in rope_parameters.
void read_rope(ModelConfig& c, const Keys& keys, double default_theta) {
  c.rope_theta = keys.number("rope_theta", default_theta);
  const Json* parameters = keys.find("rope_parameters");
  if (parameters == nullptr) parameters = keys.find("rope_scaling");
  if (parameters == nullptr) return;
  const Keys rope(*parameters, str(keys.file(), ": rope_parameters"));
  c.rope_theta = rope.number("rope_theta", static_cast<double>(c.rope_theta));
  const auto type = rope.text("rope_type", rope.text("type", "default").c_str());
  if (type == "default") return;
  if (type != "llama3")
    rope.fail("rope_type", str("is '", type, "', supported are 'default' and 'llama3'"));
  c.rope_scaling = RopeScaling{.factor = rope.number("factor"),
                               .low_factor = rope.number("low_freq_factor"),
                               .high_factor = rope.number("high_freq_factor"),
                               .original_context = static_cast<int>(std::clamp<std::int64_t>(
                                   rope.integer("original_max_position_embeddings"), 0, 1 << 30))};
}

// SmolLM3 lists layers with RoPE (1) and without (0); ours is the rule behind the list.
std::int64_t read_no_rope_every(ModelConfig c, const Keys& keys) {
  c.no_rope_every = keys.integer("no_rope_layer_interval", 4);
  const Json* value = keys.find("no_rope_layers");
  if (value == nullptr) return c.no_rope_every;
  if (!value->is_array() || static_cast<std::int64_t>(value->as_array().size()) != c.layers)
    keys.fail("no_rope_layers", str("expected one number for each of ", c.layers, " layers"));
  const auto& list = value->as_array();
  const auto has_rope = [](const Json& v) { return !v.is_integer() || v.as_integer() != 0; };
  const auto follows_rule = [&] {
    for (std::size_t layer = 0; layer < list.size(); ++layer)
      if (has_rope(list[layer]) != c.has_rope(static_cast<std::int64_t>(layer))) return false;
    return true;
  };
  if (c.no_rope_every >= 0 && follows_rule()) return c.no_rope_every;
  const auto first_without = std::find_if_not(list.begin(), list.end(), has_rope);
  c.no_rope_every = first_without == list.end() ? 0 : first_without - list.begin() + 1;
  if (!follows_rule())
    keys.fail("no_rope_layers", "expected every n-th layer to be 0 and all others 1");
  return c.no_rope_every;
}

void check_layer_types(const Keys& keys) {
  const Json* types = keys.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) keys.fail("layer_types", "expected a list");
  for (const auto& type : types->as_array())
    if (!type.is_string() || type.as_string() != "full_attention")
      keys.fail("layer_types", str("has ", type.dump(), ", supported is \"full_attention\""));
}

ModelConfig read_llama(const Keys& keys, const FamilyEntry& entry) {
  auto c = family_defaults(entry.family);
  c.layers = keys.integer("num_hidden_layers");
  c.width = keys.integer("hidden_size");
  c.heads = keys.integer("num_attention_heads");
  const bool as_heads = keys.has("num_key_value_heads") || entry.kv_heads == 0;
  c.kv_heads = keys.integer("num_key_value_heads", as_heads ? c.heads : entry.kv_heads);
  const auto even_split = c.heads > 0 ? c.width / c.heads : 0;
  c.head_size = keys.integer("head_dim", entry.family == Family::qwen3 ? 128 : even_split);
  c.mlp_width = keys.integer("intermediate_size");
  c.max_positions = keys.integer("max_position_embeddings");
  c.norm_epsilon = keys.number("rms_norm_eps", 1e-6);
  read_rope(c, keys, entry.rope_theta);
  if (entry.family == Family::smollm3) c.no_rope_every = read_no_rope_every(c, keys);
  if (entry.family != Family::qwen2) c.qkv_bias = c.out_bias = keys.flag("attention_bias", false);
  c.mlp_bias = keys.flag("mlp_bias", false);
  keys.must_be_one_of("hidden_act", {"silu"});
  keys.must_be("use_sliding_window", false);
  check_layer_types(keys);
  return c;
}

// The shortest decimal that rounds to x, so that a file says 1e-05 and not 9.99999974e-06.
double decimal(float x) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, x);
  double value = 0;
  std::from_chars(text, written.ptr, value);
  return value;
}

void write_gpt2(Json& json, const ModelConfig& c) {
  json.set("n_layer", c.layers);
  json.set("n_embd", c.width);
  json.set("n_head", c.heads);
  json.set("n_inner", c.mlp_width);
  json.set("n_positions", c.max_positions);
  json.set("layer_norm_epsilon", decimal(c.norm_epsilon));
  json.set("activation_function", "gelu_new");
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
    json.set(dropout, 0.0);
}

void write_rope(Json& json, const ModelConfig& c) {
  json.set("rope_theta", decimal(c.rope_theta));
  json.set("rope_scaling", Json());
  if (c.rope_scaling) {
    Json scaling;
    scaling.set("rope_type", "llama3");
    scaling.set("factor", decimal(c.rope_scaling->factor));
    scaling.set("low_freq_factor", decimal(c.rope_scaling->low_factor));
    scaling.set("high_freq_factor", decimal(c.rope_scaling->high_factor));
    scaling.set("original_max_position_embeddings", c.rope_scaling->original_context);
    json.set("rope_scaling", scaling);
  }
  if (c.family != Family::smollm3) return;
  Json list(Json::Array{});
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    list.push(c.has_rope(layer) ? 1 : 0);
  json.set("no_rope_layers", list);
  json.set("no_rope_layer_interval", std::max<std::int64_t>(c.no_rope_every, 1));
}

void write_llama(Json& json, const ModelConfig& c) {
  json.set("num_hidden_layers", c.layers);
  json.set("hidden_size", c.width);
  json.set("num_attention_heads", c.heads);
  json.set("num_key_value_heads", c.kv_heads);
  json.set("head_dim", c.head_size);
  json.set("intermediate_size", c.mlp_width);
  json.set("max_position_embeddings", c.max_positions);
  json.set("rms_norm_eps", decimal(c.norm_epsilon));
  json.set("hidden_act", "silu");
  write_rope(json, c);
  if (c.family != Family::qwen2) {
    json.set("attention_bias", c.qkv_bias);
    json.set("attention_dropout", 0.0);
  }
  if (c.family == Family::llama3 || c.family == Family::smollm3) json.set("mlp_bias", c.mlp_bias);
  if (c.family != Family::llama3) json.set("use_sliding_window", false);
}

}  // namespace

ModelConfig config_from_huggingface(const Json& json, const std::string& file) {
  const Keys keys(json, file);
  const auto& entry = entry_of(keys);
  auto c = entry.family == Family::gpt2 ? read_gpt2(keys) : read_llama(keys, entry);
  c.vocabulary = keys.integer("vocab_size");
  c.tied_head = keys.flag("tie_word_embeddings", entry.tied_head);
  c.init_std = keys.number("initializer_range", 0.02);
  try {
    c.validate();
  } catch (const ConfigError& e) {
    throw DataError(str(file, ": ", e.what()));
  }
  return c;
}

Json config_to_huggingface(const ModelConfig& c) {
  c.validate();
  const auto& entry = *std::find_if(std::begin(kEntries), std::end(kEntries),
                                    [&](const auto& e) { return e.family == c.family; });
  Json json;
  json.set("architectures", Json::Array{Json(entry.architecture)});
  json.set("model_type", entry.model_type);
  json.set("vocab_size", c.vocabulary);
  if (c.family == Family::gpt2)
    write_gpt2(json, c);
  else
    write_llama(json, c);
  json.set("initializer_range", decimal(c.init_std));
  json.set("tie_word_embeddings", c.tied_head);
  // Said, because the defaults of a family may lie beyond this vocabulary.
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"})
    json.set(token, Json());
  return json;
}

}  // namespace lockstep

// Reads and writes Hugging Face's config.json. An absent member has the default of the family's
// configuration class in `transformers`. docs/huggingface.md lists every member that `transformers`
// reads.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "core/function_ref.h"
#include "model/config_members.h"
#include "model/families.h"

namespace lockstep {
namespace {

struct FamilyEntry {
  Family family;
  const char* model_type;
  const char* architecture;
  // Defaults if config.json has no value:
  double rope_theta;
  bool tied_head;
  std::int64_t kv_heads;  // 0: equal to heads, which null means in every family
};
constexpr FamilyEntry kEntries[] = {
    {Family::gpt2, "gpt2", "GPT2LMHeadModel", 10000, true, 0},
    {Family::llama3, "llama", "LlamaForCausalLM", 10000, false, 0},
    {Family::qwen2, "qwen2", "Qwen2ForCausalLM", 10000, false, 32},
    {Family::qwen3, "qwen3", "Qwen3ForCausalLM", 10000, false, 32},
    {Family::smollm3, "smollm3", "SmolLM3ForCausalLM", 2000000, true, 4},
};

const FamilyEntry& entry_of(const Keys& keys) {
  const Json* type = keys.find("model_type");
  for (const auto& entry : kEntries)
    if (type != nullptr && type->is_string() && type->as_string() == entry.model_type) return entry;
  keys.refuse("model_type", "gpt2, llama, qwen2, qwen3 or smollm3", type,
              "Choose a model of one of these families.");
}

// Returns `value`, the number of `key`. Throws unless it is valid in fp32.
double checked(const Keys& keys, const char* key, double value, FunctionRef<bool(float)> is_right,
               const std::string& expected) {
  if (std::abs(value) > std::numeric_limits<float>::max() || !is_right(static_cast<float>(value)))
    keys.refuse(key, expected + ", of fp32", keys.find(key), kSetRight);
  return value;
}

double positive(const Keys& keys, const char* key, double value) {
  return checked(
      keys, key, value, [](float x) { return x > 0; }, "a number above 0");
}

// Returns width / heads, the head size if the file does not give it.
std::int64_t even_head_size(const Keys& keys, const ModelConfig& c, const std::string& width,
                            const char* heads) {
  const auto size = c.width / c.heads;
  if (size < 1 || size > kMostHeadSize)
    keys.refuse(heads, str("1 to ", kMostHeadSize, " as ", width, " / ", heads), keys.find(heads),
                kSetRight);
  if (!c.learned_positions && size % 2 != 0)
    keys.refuse(heads, str("an even ", width, " / ", heads, ", because RoPE rotates pairs"),
                keys.find(heads), kSetRight);
  return size;
}

ModelConfig read_gpt2(const Keys& keys) {
  auto c = family_defaults(Family::gpt2);
  c.layers = keys.size_of("n_layer", "num_hidden_layers", kMostLayers);
  c.width = keys.size_of("n_embd", "hidden_size", kMostWidth);
  c.heads = c.kv_heads = keys.size_of("n_head", "num_attention_heads", kMostHeads);
  const char* width = keys.find("n_embd") != nullptr ? "n_embd" : "hidden_size";
  const char* heads = keys.find("n_head") != nullptr ? "n_head" : "num_attention_heads";
  if (c.width % c.heads != 0)
    keys.refuse(heads, str("a divisor of ", width, " (", c.width, ")"), keys.find(heads),
                kSetRight);
  c.head_size = even_head_size(keys, c, width, heads);
  c.mlp_width =
      keys.given("n_inner") != nullptr ? keys.size("n_inner", kMostMlpWidth) : 4 * c.width;
  c.max_positions = keys.size_of("n_positions", "max_position_embeddings", kMostPositions);
  constexpr const char* kEpsilon = "layer_norm_epsilon";
  c.norm_epsilon = static_cast<float>(positive(keys, kEpsilon, keys.number(kEpsilon, 1e-5)));
  return c;
}

// ------------------------------------------------------------------------------------------- RoPE

struct Rope {
  double theta = 0;
  std::optional<RopeScaling> scaling;
  bool operator==(const Rope&) const = default;
};

Json without_nulls(const Json& table) {
  Json::Object members;
  for (const auto& [key, value] : table.as_object())
    if (!value.is_null()) members.emplace_back(key, value);
  return members;
}

// Returns the value of `key` in a table of RoPE settings or beside the table; nullptr if neither
// has it. Two different values are an error.
const Json* one_of_both(const Keys& keys, const Keys& table, const char* key) {
  const Json *inner = table.given(key), *outer = keys.given(key);
  if (inner == nullptr || outer == nullptr) return inner != nullptr ? inner : outer;
  if (is_same(*inner, *outer)) return inner;
  table.refuse(key, str(key, " beside the table (", outer->dump(), ")"), inner, kKeepOne);
}

// Returns whichever of the two has the member, or `keys` if neither has it.
const Keys& place_of(const Keys& keys, const Keys& table, const char* key) {
  const Json* value = one_of_both(keys, table, key);
  return value == nullptr || value == keys.find(key) ? keys : table;
}

double read_theta(const Keys& keys, double default_theta) {
  return checked(
      keys, "rope_theta", keys.number("rope_theta", default_theta), [](float x) { return x > 1; },
      "a number above 1");
}

// Returns the type of a table: rope_type or, in older files, type. It is optional in
// rope_parameters. It is required in a table of scaling, because "default" scales nothing.
std::string rope_type(const Keys& table, bool is_scaling) {
  const Json *type = table.find("rope_type"), *old_name = table.find("type");
  if (type != nullptr && old_name != nullptr && !is_same(*type, *old_name))
    table.refuse("type", str("rope_type (", type->dump(), ")"), old_name, kKeepOne);
  if (type == nullptr) type = old_name;
  if (type == nullptr && !is_scaling) return "default";
  if (type != nullptr && (is_same(*type, "default") || is_same(*type, "llama3")))
    return type->as_string();
  table.refuse("rope_type", R"("default" or "llama3")", type, "Choose a model with one of these.");
}

void check_rope_members(const Keys& table, const std::string& type) {
  std::vector<std::string_view> known{"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  if (type == "llama3")
    known.insert(known.end(), {"factor", "low_freq_factor", "high_freq_factor",
                               "original_max_position_embeddings"});
  for (const auto& [key, value] : table.json().as_object())
    if (std::find(known.begin(), known.end(), key) == known.end())
      table.refuse(key.c_str(), str("no such member in a table of type \"", type, "\""), &value,
                   "Set the right rope_type, or remove the member if it has no effect.");
}

Rope read_rope_table(const Keys& keys, const char* name, const ModelConfig& c, double theta) {
  if (!keys.find(name)->is_object()) keys.refuse(name, "an object", keys.find(name));
  const Json json = without_nulls(*keys.find(name));
  const Keys table(json, str(keys.file(), ": ", name));
  check_fixed_members(table, c.family);
  Rope rope{.theta = read_theta(place_of(keys, table, "rope_theta"), theta),
            .scaling = std::nullopt};
  const auto type = rope_type(table, std::string_view(name) == "rope_scaling");
  check_rope_members(table, type);
  if (type == "default") return rope;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const Keys& place = place_of(keys, table, kOriginal);
  const auto context = place.find(kOriginal) == nullptr
                           ? c.max_positions
                           : place.size(kOriginal, std::numeric_limits<int>::max());
  const double factor = checked(
      table, "factor", table.number("factor"), [](float x) { return x >= 1; },
      "a number of at least 1");
  const double low = positive(table, "low_freq_factor", table.number("low_freq_factor"));
  const double high = checked(
      table, "high_freq_factor", table.number("high_freq_factor"),
      [&](float x) { return x > static_cast<float>(low); },
      str("a number above low_freq_factor (", low, ")"));
  rope.scaling = RopeScaling{.factor = static_cast<float>(factor),
                             .low_factor = static_cast<float>(low),
                             .high_factor = static_cast<float>(high),
                             .original_context = static_cast<int>(context)};
  return rope;
}

// `transformers` 5 writes rope_parameters; earlier versions write rope_theta and rope_scaling. A
// file may have all of them if they are equal.
void read_rope(ModelConfig& c, const Keys& keys, double default_theta) {
  std::optional<Rope> rope;
  for (const char* place : {"rope_parameters", "rope_scaling"}) {
    if (keys.given(place) == nullptr) continue;
    const auto read = read_rope_table(keys, place, c, default_theta);
    if (rope && read != *rope)
      keys.refuse(
          place,
          str("the settings of rope_parameters (", keys.find("rope_parameters")->dump(), ")"),
          keys.find(place), kKeepOne);
    rope = read;
  }
  if (!rope) rope = Rope{.theta = read_theta(keys, default_theta), .scaling = {}};
  c.rope_theta = static_cast<float>(rope->theta);
  c.rope_scaling = rope->scaling;
}

// ----------------------------------------------------------------------------------------- layers

// SmolLM3 lists the layers with RoPE (1 or true) and without (0 or false); here the rule that
// produces the list is stored. The interval is the rule of files without a list.
std::int64_t read_no_rope_every(ModelConfig c, const Keys& keys) {
  constexpr const char *kList = "no_rope_layers", *kEvery = "no_rope_layer_interval";
  const Json* value = keys.given(kList);
  c.no_rope_every = keys.integer(kEvery, 4);
  if (value == nullptr) {
    if (c.no_rope_every < 1) keys.refuse(kEvery, "1 or more", keys.find(kEvery));
    return c.no_rope_every;
  }
  if (!value->is_array() || static_cast<std::int64_t>(value->as_array().size()) < c.layers)
    keys.refuse(kList, str("a value for each of ", c.layers, " layers"), value);
  std::vector<bool> has_rope;
  for (const auto& layer : value->as_array()) {
    if (!layer.is_integer() && !layer.is_bool())
      keys.refuse(kList, "0, 1, false or true for each layer", &layer);
    has_rope.push_back(layer.is_bool() ? layer.as_bool() : layer.as_integer() != 0);
  }
  has_rope.resize(static_cast<std::size_t>(std::max<std::int64_t>(c.layers, 0)));
  const auto follows_rule = [&] {
    for (std::size_t layer = 0; layer < has_rope.size(); ++layer)
      if (has_rope[layer] != c.has_rope(static_cast<std::int64_t>(layer))) return false;
    return true;
  };
  if (c.no_rope_every >= 0 && follows_rule()) return c.no_rope_every;
  const auto first_without = std::find(has_rope.begin(), has_rope.end(), false);
  c.no_rope_every = first_without == has_rope.end() ? 0 : first_without - has_rope.begin() + 1;
  if (!follows_rule())
    keys.refuse(kList, "0 for every n-th layer and 1 for all others", value,
                "Choose a model with such layers.");
  return c.no_rope_every;
}

// Whether use_sliding_window gives a layer a window in a file without layer_types.
bool has_window(const Keys& keys, const ModelConfig& c) {
  const bool smollm3 = c.family == Family::smollm3;
  const bool has_member = smollm3 || c.family == Family::qwen2 || c.family == Family::qwen3;
  if (!has_member || !keys.flag("use_sliding_window", false)) return false;
  const bool is_default = keys.find("sliding_window") == nullptr;
  if (is_default ? smollm3 : keys.given("sliding_window") == nullptr) return false;
  if (smollm3) return c.no_rope_every > 0 && c.no_rope_every <= c.layers;
  return keys.integer("max_window_layers", 28) < c.layers;
}

void check_windows(const Keys& keys, const ModelConfig& c) {
  const Json* types = keys.given("layer_types");
  if (types == nullptr) {
    if (has_window(keys, c))
      keys.refuse("use_sliding_window", "false, because layers have a window",
                  keys.find("use_sliding_window"), "Choose a model without windows.");
    return;
  }
  if (!types->is_array() || static_cast<std::int64_t>(types->as_array().size()) != c.layers)
    keys.refuse("layer_types", str("a type for each of ", c.layers, " layers"), types);
  for (const auto& type : types->as_array())
    if (!is_same(type, "full_attention") && !is_same(type, "attention"))
      keys.refuse("layer_types", R"("full_attention" for every layer)", &type,
                  "Choose a model with full attention.");
}

// ----------------------------------------------------------------------------------------------

ModelConfig read_llama(const Keys& keys, const FamilyEntry& entry) {
  auto c = family_defaults(entry.family);
  c.layers = keys.size("num_hidden_layers", kMostLayers);
  c.width = keys.size("hidden_size", kMostWidth);
  c.heads = keys.size("num_attention_heads", kMostHeads);
  // `transformers` rejects every other Llama, whatever the head size.
  if (entry.family == Family::llama3 && c.width % c.heads != 0)
    keys.refuse("num_attention_heads", str("a divisor of hidden_size (", c.width, ")"),
                keys.find("num_attention_heads"), kSetRight);
  const bool as_heads = keys.find("num_key_value_heads") != nullptr || entry.kv_heads == 0;
  c.kv_heads = keys.given("num_key_value_heads") != nullptr
                   ? keys.size("num_key_value_heads", kMostHeads)
               : as_heads ? c.heads
                          : entry.kv_heads;
  if (c.heads % c.kv_heads != 0)
    keys.refuse("num_key_value_heads", str("a divisor of num_attention_heads (", c.heads, ")"),
                keys.find("num_key_value_heads"), kSetRight);
  const bool even = entry.family != Family::qwen3 && keys.given("head_dim") == nullptr;
  c.head_size = even ? even_head_size(keys, c, "hidden_size", "num_attention_heads")
                : keys.find("head_dim") == nullptr ? 128
                                                   : keys.size("head_dim", kMostHeadSize);
  if (c.head_size % 2 != 0)
    keys.refuse("head_dim", "an even number, because RoPE rotates pairs", keys.find("head_dim"),
                kSetRight);
  c.mlp_width = keys.size("intermediate_size", kMostMlpWidth);
  c.max_positions = keys.size("max_position_embeddings", kMostPositions);
  c.norm_epsilon =
      static_cast<float>(positive(keys, "rms_norm_eps", keys.number("rms_norm_eps", 1e-6)));
  read_rope(c, keys, entry.rope_theta);
  if (entry.family == Family::smollm3) c.no_rope_every = read_no_rope_every(c, keys);
  if (entry.family != Family::qwen2) c.qkv_bias = c.out_bias = keys.flag("attention_bias", false);
  if (entry.family == Family::llama3 || entry.family == Family::smollm3)
    c.mlp_bias = keys.flag("mlp_bias", false);
  return c;
}

// Returns the shortest decimal that rounds to x, so that a file has 1e-05 and not 9.99999974e-06.
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
  check_fixed_members(keys, entry.family);
  auto c = entry.family == Family::gpt2 ? read_gpt2(keys) : read_llama(keys, entry);
  check_windows(keys, c);
  c.vocabulary = keys.size("vocab_size", kMostVocabulary);
  c.tied_head = keys.flag("tie_word_embeddings", entry.tied_head);
  constexpr const char* kRange = "initializer_range";
  c.init_std = static_cast<float>(checked(
      keys, kRange, keys.number(kRange, 0.02), [](float x) { return x >= 0; },
      "a number of at least 0"));
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
  // Written explicitly, because the defaults of a family may lie beyond this vocabulary.
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"})
    json.set(token, Json());
  return json;
}

}  // namespace lockstep

#include "model/families.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>

#include "dist/param_store.h"
#include "model/transformer.h"
#include "tests/model/published.h"
#include "tests/wording.h"

namespace lockstep::testing::families_test {

std::vector<ModelConfig> published() {
  return {gpt2_124m(), llama3_8b(), qwen2_05b(), qwen3_06b(), smollm3_3b()};
}

Json without(const Json& json, const std::string& member) {
  Json::Object rest;
  for (const auto& [key, value] : json.as_object())
    if (key != member) rest.emplace_back(key, value);
  return Json(rest);
}

TEST(Families, values_that_no_published_model_has_survive_a_round_trip) {
  auto c = llama3_8b();
  c.rope_scaling =
      RopeScaling{.factor = 32, .low_factor = 1.5f, .high_factor = 5.25f, .original_context = 4096};
  c.rope_theta = 12345.5f;
  c.norm_epsilon = 3e-7f;
  c.init_std = 0.013f;
  c.qkv_bias = c.out_bias = c.mlp_bias = c.tied_head = true;
  c.head_size = 96;
  EXPECT_EQ(config_from_huggingface(config_to_huggingface(c), "c"), c);
}

TEST(Families, a_config_survives_a_round_trip_through_hugging_face) {
  for (const auto& c : published()) {
    const auto text = config_to_huggingface(c).dump(2);
    EXPECT_EQ(config_from_huggingface(Json::parse(text, "config.json"), "config.json"), c) << text;
  }
}

// The default of a family may be outside a small vocabulary; `transformers` then rejects the model.
TEST(Families, special_tokens_are_null_instead_of_the_defaults_of_a_family) {
  for (const auto& c : published())
    for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"})
      EXPECT_TRUE(config_to_huggingface(c).at(token).is_null()) << token;
}

TEST(Families, the_published_llama_3_config_is_read) {
  const auto* const text = R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
    "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 128256})";
  EXPECT_EQ(config_from_huggingface(Json::parse(text, "c"), "c"), llama3_8b());
}

TEST(Families, rope_parameters_of_newer_files_give_the_same_model) {
  auto json = config_to_huggingface(llama3_8b());
  json.set("rope_theta", Json());
  json.set("rope_scaling", Json());
  json.set("rope_parameters",
           Json::parse(R"({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
             "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192})",
                       "rope"));
  EXPECT_EQ(config_from_huggingface(json, "c"), llama3_8b());
}

TEST(Families, absent_keys_have_the_defaults_of_transformers) {
  const auto json = Json::parse(
      R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 12, "vocab_size": 9,
          "num_attention_heads": 3, "intermediate_size": 8, "max_position_embeddings": 16,
          "num_key_value_heads": null})",
      "c");
  const auto c = config_from_huggingface(json, "c");
  EXPECT_EQ(c.kv_heads, 3);
  EXPECT_EQ(c.head_size, 4);
  EXPECT_EQ(c.rope_theta, 10000.0f);
  EXPECT_EQ(c.norm_epsilon, 1e-6f);
  EXPECT_FALSE(c.tied_head);
  auto qwen3 = json;
  qwen3.set("model_type", "qwen3");
  EXPECT_EQ(config_from_huggingface(qwen3, "c").head_size, 128);
}

// Null means the number of query heads in every family; an absent key has the default of its class.
TEST(Families, absent_kv_heads_are_the_default_of_the_family) {
  const auto kv_heads = [](ModelConfig c, bool absent) {
    c.heads = 32;
    auto json = without(config_to_huggingface(c), "num_key_value_heads");
    if (!absent) json.set("num_key_value_heads", Json());
    return config_from_huggingface(json, "c").kv_heads;
  };
  for (const auto& c : {llama3_8b(), qwen2_05b(), qwen3_06b(), smollm3_3b()})
    EXPECT_EQ(kv_heads(c, false), 32) << name(c.family);
  EXPECT_EQ(kv_heads(llama3_8b(), true), 32);
  EXPECT_EQ(kv_heads(qwen2_05b(), true), 32);
  EXPECT_EQ(kv_heads(qwen3_06b(), true), 32);
  EXPECT_EQ(kv_heads(smollm3_3b(), true), 4);
}

// Changes of a config.json, and the place of the value that is then rejected; nullptr: the model
// stays the same.
struct Change {
  const char* members;
  const char* place;
};

// The number, string or boolean at `place`, such as "rope_scaling: factor"; "": none.
std::string value_at(const Json& change, const std::string& place) {
  const auto colon = place.find(": ");
  const Json* value = change.find(place.substr(0, colon));
  if (value != nullptr && colon != std::string::npos) value = value->find(place.substr(colon + 2));
  const bool is_one =
      value != nullptr && !value->is_null() && !value->is_array() && !value->is_object();
  return is_one ? value->dump() : "";
}

void expect_each(const Json& json, const ModelConfig& same, std::initializer_list<Change> changes) {
  for (const auto& [members, place] : changes) {
    const auto change = Json::parse(members, "change");
    const auto read = [&] {
      Json all = json;
      for (const auto& [key, value] : change.as_object())
        all.set(key, value);
      return config_from_huggingface(all, "c");
    };
    if (place == nullptr)
      EXPECT_EQ(read(), same) << members;
    else
      expect_refusal<DataError>("model/families", str(name(same.family), ": ", change.dump()),
                                {str("c: ", place, ": "), value_at(change, place)}, read);
  }
}
void expect_each(const ModelConfig& model, std::initializer_list<Change> changes) {
  expect_each(config_to_huggingface(model), model, changes);
}

// A setting in two places must be equal in both. llama3_8b has its table in rope_scaling, and its
// theta outside the table.
TEST(Families, contradictory_rope_settings_are_rejected) {
  expect_each(
      llama3_8b(),
      {{R"({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000, "factor": 8,
            "low_freq_factor": 1, "high_freq_factor": 4,
            "original_max_position_embeddings": 8192}})",
        nullptr},
       {R"({"rope_parameters": {"type": "default"}})", "rope_scaling"},
       {R"({"rope_parameters": {"rope_type": "yarn", "factor": 4}})", "rope_parameters: rope_type"},
       {R"({"rope_parameters": {"rope_type": "default", "rope_theta": 500000},
            "rope_scaling": {"rope_type": "linear", "factor": 4}})",
        "rope_scaling: rope_type"},
       {R"({"rope_scaling": null, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}})",
        "rope_parameters: rope_theta"},
       {R"({"original_max_position_embeddings": 8192})", nullptr},
       {R"({"original_max_position_embeddings": 4096})",
        "rope_scaling: original_max_position_embeddings"},
       {R"({"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 8}})",
        "rope_scaling: type"}});
  // In `transformers` a table of rope_scaling replaces rope_parameters, including its theta.
  expect_each(without(config_to_huggingface(llama3_8b()), "rope_theta"), llama3_8b(),
              {{R"({"rope_scaling": {"type": "default"},
                    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}})",
                "rope_scaling"}});
}

TEST(Families, a_rope_table_with_unknown_members_or_without_a_type_is_refused) {
  auto plain = llama3_8b();
  plain.rope_scaling.reset();
  expect_each(
      config_to_huggingface(llama3_8b()), plain,
      {{R"({"rope_scaling": null, "rope_parameters": {}})", nullptr},
       {R"({"rope_scaling": null, "rope_parameters": {"rope_theta": 500000}})", nullptr},
       {R"({"rope_scaling": {"rope_type": "default", "factor": null}})", nullptr},
       {R"({"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 1}})", nullptr},
       {R"({"rope_scaling": {"factor": 8}})", "rope_scaling: rope_type"},
       {R"({"rope_scaling": {}})", "rope_scaling: rope_type"},
       {R"({"rope_scaling": {"rope_type": "default", "factor": 8}})", "rope_scaling: factor"},
       {R"({"rope_scaling": null, "rope_parameters": {"factor": 8}})", "rope_parameters: factor"},
       {R"({"rope_scaling": {"rope_type": "llama3", "mscale": 2}})", "rope_scaling: mscale"},
       {R"({"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}})",
        "rope_scaling: partial_rotary_factor"},
       {R"({"rope_scaling": 3})", "rope_scaling"},
       // The table lacks one of its numbers.
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": null, "low_freq_factor": 1,
            "high_freq_factor": 4}})",
        "rope_scaling: factor"},
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": null,
            "high_freq_factor": 4}})",
        "rope_scaling: low_freq_factor"},
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
            "high_freq_factor": null}})",
        "rope_scaling: high_freq_factor"}});
}

TEST(Families, llama3_rope_without_an_original_context_uses_max_positions) {
  auto c = llama3_8b();
  auto json = config_to_huggingface(c);
  auto scaling = json.at("rope_scaling");
  scaling.set("original_max_position_embeddings", Json());
  json.set("rope_scaling", scaling);
  c.rope_scaling->original_context = static_cast<int>(c.max_positions);
  EXPECT_EQ(config_from_huggingface(json, "c"), c);
  json.set("original_max_position_embeddings", 4096);
  c.rope_scaling->original_context = 4096;
  EXPECT_EQ(config_from_huggingface(json, "c"), c);
}

// `transformers` 5 reads GPT-2's sizes by either name.
TEST(Families, sizes_of_gpt2_under_two_names_must_be_equal) {
  expect_each(gpt2_124m(),
              {{R"({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                    "max_position_embeddings": 1024})",
                nullptr},
               {R"({"num_attention_heads": 6})", "num_attention_heads"},
               {R"({"max_position_embeddings": 2048})", "max_position_embeddings"}});
  auto renamed = without(config_to_huggingface(gpt2_124m()), "n_head");
  renamed.set("num_attention_heads", 12);
  EXPECT_EQ(config_from_huggingface(renamed, "c"), gpt2_124m());
}

// null is not an absent member: `transformers` also rejects it.
TEST(Families, null_is_rejected_if_it_has_no_meaning) {
  expect_each(qwen3_06b(),
              {{R"({"tie_word_embeddings": null})", "tie_word_embeddings"},
               {R"({"rms_norm_eps": null})", "rms_norm_eps"},
               {R"({"rope_theta": null})", "rope_theta"},
               {R"({"rope_theta": null, "rope_scaling": {"type": "default"}})", "rope_theta"},
               {R"({"rope_theta": null, "rope_parameters": {"rope_theta": 1e6}})", nullptr},
               {R"({"head_dim": null})", "head_dim"},
               {R"({"is_causal": null})", "is_causal"}});
}

// The errors have the names and the values of the file.
TEST(Families, values_out_of_range_are_rejected_by_member) {
  expect_each(
      llama3_8b(),
      {{R"({"num_hidden_layers": 0})", "num_hidden_layers"},
       {R"({"num_attention_heads": 33})", "num_attention_heads"},
       {R"({"num_key_value_heads": 5})", "num_key_value_heads"},
       {R"({"head_dim": 127})", "head_dim"},
       {R"({"head_dim": null, "num_attention_heads": 4096, "num_key_value_heads": 1})",
        "num_attention_heads"},
       {R"({"head_dim": null, "num_attention_heads": 1, "num_key_value_heads": 1,
            "hidden_size": 8192})",
        "num_attention_heads"},
       {R"({"vocab_size": -1})", "vocab_size"},
       {R"({"rms_norm_eps": 0})", "rms_norm_eps"},
       {R"({"rms_norm_eps": 1e-60})", "rms_norm_eps"},
       {R"({"initializer_range": -1})", "initializer_range"},
       {R"({"rope_theta": 1e300})", "rope_theta"},
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": 0.5}})", "rope_scaling: factor"},
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 0}})",
        "rope_scaling: low_freq_factor"},
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
            "high_freq_factor": 4}})",
        "rope_scaling: high_freq_factor"},
       {R"({"rope_scaling": {"rope_type": "llama3", "original_max_position_embeddings": -5}})",
        "rope_scaling: original_max_position_embeddings"},
       {R"({"original_max_position_embeddings": 2147483648, "rope_scaling": {"type": "llama3"}})",
        "original_max_position_embeddings"}});
  expect_each(gpt2_124m(), {{R"({"n_head": 11})", "n_head"},
                            {R"({"num_attention_heads": 12, "n_head": 0})", "n_head"},
                            {R"({"n_inner": 0})", "n_inner"},
                            {R"({"layer_norm_epsilon": -1})", "layer_norm_epsilon"}});
}

TEST(Families, whole_numbers_may_be_written_as_floats) {
  expect_each(
      llama3_8b(),
      {{R"({"num_hidden_layers": 32.0, "hidden_size": 4.096e3, "vocab_size": 128256.0})", nullptr},
       {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                    "high_freq_factor": 4, "original_max_position_embeddings": 8192.0}})",
        nullptr},
       {R"({"num_hidden_layers": 32.5})", "num_hidden_layers"},
       {R"({"hidden_size": 1e300})", "hidden_size"}});
}

TEST(Families, unused_windows_and_biases_are_accepted) {
  expect_each(qwen3_06b(),
              {{R"({"use_sliding_window": true, "sliding_window": null})", nullptr},
               {R"({"use_sliding_window": true, "max_window_layers": 28})", nullptr},
               {R"({"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 99})",
                nullptr},
               {R"({"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 27})",
                "use_sliding_window"},
               {R"({"mlp_bias": true})", nullptr},
               {R"({"hidden_act": "swish"})", nullptr}});
  auto all_rope = smollm3_3b();
  all_rope.no_rope_every = 0;
  expect_each(all_rope, {{R"({"use_sliding_window": true, "sliding_window": 4096})", nullptr}});
}

TEST(Families, layers_with_a_sliding_window_are_rejected) {
  auto json = config_to_huggingface(smollm3_3b());
  Json types(Json::Array{});
  for (int layer = 0; layer < 36; ++layer)
    types.push("full_attention");
  json.set("layer_types", types);
  EXPECT_EQ(config_from_huggingface(json, "c"), smollm3_3b());
  types.push("sliding_attention");
  json.set("layer_types", types);
  EXPECT_THROW(config_from_huggingface(json, "c"), DataError);
  expect_each(smollm3_3b(), {{R"({"layer_types": "full_attention"})", "layer_types"},
                             {R"({"layer_types": [1]})", "layer_types"}});
}

TEST(Families, a_list_of_layers_without_rope_becomes_an_interval_or_is_rejected) {
  auto five = smollm3_3b();
  five.layers = 5;
  const std::pair<const char*, std::int64_t> rules[] = {
      {"[1, 1, 1, 0, 1]", 4},
      {"[1, 0, 1, 0, 1]", 2},
      {"[1, 1, 1, 1, 1]", 0},
      {"[0, 0, 0, 0, 0]", 1},
      {"[1, 0, 1, 0, 1, 1, 1]", 2},  // values past the last layer
      {"[true, false, true, false, true]", 2},
      {"[true, true, true, true, true]", 0}};
  auto json = config_to_huggingface(five);
  for (const auto& [list, every] : rules) {
    json.set("no_rope_layers", Json::parse(list, "list"));
    EXPECT_EQ(config_from_huggingface(json, "c").no_rope_every, every) << list;
  }
  expect_each(five, {{R"({"no_rope_layers": [0, 1, 1, 1, 1]})", "no_rope_layers"},
                     {R"({"no_rope_layers": [1, 1, 1, 0]})", "no_rope_layers"},
                     {R"({"no_rope_layers": [1, 1, 1, 0.0, 1]})", "no_rope_layers"},
                     {R"({"no_rope_layers": ["1", "1", "1", "0", "1"]})", "no_rope_layers"},
                     {R"({"no_rope_layers": [1, null, 1, 0, 1]})", "no_rope_layers"}});
}

TEST(Families, unsupported_values_are_rejected_by_file_and_key) {
  expect_each(llama3_8b(), {{R"({"hidden_act": "gelu"})", "hidden_act"},
                            {R"({"sliding_window": 4096})", "sliding_window"},
                            {R"({"model_type": "mamba"})", "model_type"},
                            {R"({"hidden_size": "wide"})", "hidden_size"},
                            {R"({"vocab_size": null})", "vocab_size"},
                            {R"({"num_key_value_heads": 7})", "num_key_value_heads"},
                            {R"({"rope_theta": false})", "rope_theta"},
                            {R"({"num_hidden_layers": -4})", "num_hidden_layers"},
                            {R"({"rope_scaling": "llama3"})", "rope_scaling"},
                            {R"({"rope_scaling": {"rope_type": "yarn"}})", "rope_scaling"}});
  expect_refusal<DataError>("model/families", "3", {"c: "},
                            [] { config_from_huggingface(Json(3), "c"); });
}

// Every declared parameter is in exactly one tensor of the files, with the right number of
// elements. No tensor has any other parameter.
TEST(Families, tensors_of_the_files_have_each_declared_parameter_once) {
  for (auto c : published()) {
    c.layers = 4;
    auto comms = make_comms();
    ParamStore params(comms, {});
    const Transformer model(params, c, {});
    std::map<std::string, std::int64_t> declared;
    std::int64_t total = 0;
    for (int unit = 0; unit < params.units(); ++unit)
      for (const auto& spec : params.layout().specs(unit)) {
        EXPECT_TRUE(declared.emplace(spec.name, spec.shape.elements()).second) << spec.name;
        total += spec.shape.elements();
      }
    EXPECT_EQ(total, parameter_count(c)) << name(c.family);
    for (const auto& tensor : huggingface_tensors(c)) {
      std::int64_t elements = 0;
      for (const auto& parameter : tensor.parameters) {
        ASSERT_EQ(declared.count(parameter), 1U) << parameter;
        elements += declared[parameter];
        declared.erase(parameter);
      }
      EXPECT_EQ(tensor.shape.elements(), elements) << tensor.name;
    }
    EXPECT_TRUE(declared.empty()) << declared.begin()->first;
  }
}

TEST(Families, gpt2_files_have_fused_and_transposed_matrices) {
  const auto tensors = huggingface_tensors(gpt2_124m());
  const auto c_attn = std::find_if(tensors.begin(), tensors.end(), [](const auto& t) {
    return t.name == "transformer.h.3.attn.c_attn.weight";
  });
  ASSERT_NE(c_attn, tensors.end());
  EXPECT_TRUE(c_attn->transposed);
  EXPECT_EQ(c_attn->shape, (Shape{768, 2304}));
  EXPECT_EQ(c_attn->parameters, (std::vector<std::string>{"transformer.h.3.attn.c_attn.q.weight",
                                                          "transformer.h.3.attn.c_attn.k.weight",
                                                          "transformer.h.3.attn.c_attn.v.weight"}));
}

TEST(Families, tensor_names_of_files_without_a_head_are_mapped) {
  const std::pair<const char*, const char*> gpt2[] = {
      {"h.0.ln_1.weight", "transformer.h.0.ln_1.weight"},
      {"wte.weight", "transformer.wte.weight"},
      {"transformer.ln_f.bias", "transformer.ln_f.bias"},
      {"h.0.attn.c_attn.bias", "transformer.h.0.attn.c_attn.bias"},
      {"lm_head.weight", "lm_head.weight"}};
  for (const auto& [stored, listed] : gpt2)
    EXPECT_EQ(listed_name(Family::gpt2, stored), listed);
  EXPECT_EQ(listed_name(Family::llama3, "layers.0.mlp.up_proj.weight"),
            "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(listed_name(Family::llama3, "norm.weight"), "model.norm.weight");
  EXPECT_EQ(listed_name(Family::llama3, "lm_head.weight"), "lm_head.weight");
}

TEST(Families, a_buffer_is_recognized_by_its_whole_name_and_an_existing_layer) {
  const auto gpt2 = gpt2_124m(), llama = llama3_8b();
  EXPECT_EQ(model_buffer(gpt2, "h.11.attn.bias"), ModelBuffer::causal_mask);
  EXPECT_EQ(model_buffer(gpt2, "transformer.h.0.attn.masked_bias"), ModelBuffer::masked_score);
  EXPECT_EQ(model_buffer(llama, "model.layers.31.self_attn.rotary_emb.inv_freq"),
            ModelBuffer::rope_frequencies);
  EXPECT_EQ(model_buffer(llama, "rotary_emb.inv_freq"), ModelBuffer::rope_frequencies);
  for (const char* name :
       {"h.12.attn.bias", "h.-1.attn.bias", "h.attn.bias", "h.0.attn.c_attn.bias",
        "h.0.x.attn.bias", "h.0.attn.rotary_emb.inv_freq", "lm_head.weight"})
    EXPECT_EQ(model_buffer(gpt2, name), std::nullopt) << name;
  for (const char* name : {"layers.32.self_attn.rotary_emb.inv_freq", "layers.0.attn.bias",
                           "layers.0.self_attn.q_proj.weight", "x.rotary_emb.inv_freq"})
    EXPECT_EQ(model_buffer(llama, name), std::nullopt) << name;
}

}  // namespace lockstep::testing::families_test

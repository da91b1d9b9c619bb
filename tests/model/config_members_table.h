// Every member of config.json that `transformers` 5 reads for the five families, and what Lockstep
// does with it. docs/huggingface.md has the same table; tests/oracle/config_members.py compares it
// with `transformers`.
#pragma once

namespace lockstep::testing {

enum class MemberUse : std::uint8_t {
  read,     // another value makes another model, or is rejected
  fixed,    // any value except those listed is rejected
  weights,  // checked by the reader of weights
  ignored,  // no value changes the model
};

struct MemberRow {
  const char* members;   // names, separated by spaces
  const char* families;  // "all", or names of families separated by spaces
  MemberUse use;
  // read: values that do not describe the model of the test; fixed: the accepted values.
  const char* values;
  const char* note;
  const char* beside = "{}";  // read: further members that the test needs
};

constexpr const char *kNotGpt2 = "llama3 qwen2 qwen3 smollm3", *kQwen = "qwen2 qwen3",
                     *kWindowed = "qwen2 qwen3 smollm3";

constexpr MemberRow kMemberRows[] = {
    {"model_type", "all", MemberUse::read, R"(["mamba", null])",
     "the family: `gpt2`, `llama`, `qwen2`, `qwen3`, `smollm3`"},
    {"vocab_size", "all", MemberUse::read, "[77]", "V"},
    {"tie_word_embeddings", "all", MemberUse::read, R"([null, "true"])",
     "whether the head is the embedding"},
    {"initializer_range", "all", MemberUse::read, "[0.5]", "standard deviation of initial weights"},
    {"n_layer num_hidden_layers", "gpt2", MemberUse::read, "[7]", "L; equal if both are there"},
    {"n_embd hidden_size", "gpt2", MemberUse::read, "[60]", "D; equal if both are there"},
    {"n_head num_attention_heads", "gpt2", MemberUse::read, "[6]", "H; equal if both are there"},
    {"n_positions max_position_embeddings", "gpt2", MemberUse::read, "[17]",
     "positions; equal if both are there"},
    {"n_inner", "gpt2", MemberUse::read, "[5]", "F; null: 4 D"},
    {"layer_norm_epsilon", "gpt2", MemberUse::read, "[0.5]", "default 1e-5"},
    {"num_hidden_layers", kNotGpt2, MemberUse::read, "[7]", "L"},
    {"hidden_size", kNotGpt2, MemberUse::read, "[60]", "D"},
    {"num_attention_heads", kNotGpt2, MemberUse::read, "[6]", "H"},
    {"num_key_value_heads", kNotGpt2, MemberUse::read, "[1]", "G; null: H"},
    {"head_dim", kNotGpt2, MemberUse::read, "[2]", "K; null: D / H, an error for qwen3"},
    {"intermediate_size", kNotGpt2, MemberUse::read, "[5]", "F"},
    {"max_position_embeddings", kNotGpt2, MemberUse::read, "[17]", "positions"},
    {"rms_norm_eps", kNotGpt2, MemberUse::read, "[0.5]", "default 1e-6"},
    {"rope_parameters rope_scaling", kNotGpt2, MemberUse::read,
     R"([{"rope_type": "yarn", "factor": 2}, {"rope_theta": 77.5}])",
     "null, or a table with `rope_type` (or `type`) `default` or `llama3`; equal if both are "
     "there"},
    {"rope_theta", kNotGpt2, MemberUse::read, "[77.5]",
     "also in the table (null beside it is accepted); equal if both are there"},
    {"original_max_position_embeddings", kNotGpt2, MemberUse::read, "[5]",
     "also in the table, equal; default `max_position_embeddings`",
     R"({"rope_scaling": {"type": "llama3", "factor": 2, "low_freq_factor": 1,
                          "high_freq_factor": 4}})"},
    {"attention_bias", "llama3 qwen3 smollm3", MemberUse::read, "[true]",
     "bias of q, k, v and the output"},
    {"mlp_bias", "llama3 smollm3", MemberUse::read, "[true]", "bias of the MLP"},
    {"no_rope_layers", "smollm3", MemberUse::read, "[[1, 0], [true, false], [1]]",
     "0 or false: a layer without RoPE, every n-th; values past the last layer are ignored; null: "
     "by the interval"},
    {"no_rope_layer_interval", "smollm3", MemberUse::read, "[2, 0, null]",
     "n, if there is no `no_rope_layers`; default 4"},
    {"layer_types", "all", MemberUse::read,
     R"([["full_attention", "sliding_attention"], ["full_attention"]])",
     "`full_attention` for every layer, or null"},
    {"use_sliding_window", kWindowed, MemberUse::read, "[true, null]",
     "true is an error if a layer has a window",
     R"({"sliding_window": 4, "max_window_layers": 1, "no_rope_layers": [1, 0]})"},
    {"sliding_window", kWindowed, MemberUse::read, "[4]",
     "null: no window; read with `use_sliding_window`",
     R"({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 1,
         "no_rope_layers": [1, 0]})"},
    {"max_window_layers", kQwen, MemberUse::read, "[1]", "read with `use_sliding_window`",
     R"({"use_sliding_window": true, "sliding_window": 4, "max_window_layers": 2})"},

    {"is_causal", "all", MemberUse::fixed, "[true]", "false: a model for embeddings"},
    {"activation_function", "gpt2", MemberUse::fixed,
     R"(["gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh"])",
     "names of one formula"},
    {"hidden_act", kNotGpt2, MemberUse::fixed, R"(["silu", "swish"])", "names of one formula"},
    {"scale_attn_weights", "gpt2", MemberUse::fixed, "[true]", ""},
    {"scale_attn_by_inverse_layer_idx add_cross_attention", "gpt2", MemberUse::fixed, "[false]",
     ""},
    {"partial_rotary_factor", kNotGpt2, MemberUse::fixed, "[1, null]", "in the table too"},
    {"sliding_window attention_chunk_size", "gpt2 llama3", MemberUse::fixed, "[null]",
     "`transformers` applies it in generation alone"},
    {"attribute_map", "gpt2", MemberUse::fixed,
     R"([{"hidden_size": "n_embd", "max_position_embeddings": "n_positions",
          "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}])",
     "other names of members"},
    {"attribute_map", kNotGpt2, MemberUse::fixed, "[{}]", "other names of members"},
    {"per_layer_config", "all", MemberUse::fixed, "[null, {}]", "layers that differ"},
    {"kv_sharing_modes", "all", MemberUse::fixed, "[null, []]",
     "layers that share keys and values"},
    {"text_config decoder generator", "all", MemberUse::fixed, "[null]", "a model inside another"},
    {"configuration_files", "all", MemberUse::fixed, "[null, []]",
     "other files that replace this one"},
    {"transformers_weights", "all", MemberUse::fixed, "[null]", "the name of the file of weights"},

    {"quantization_config", "all", MemberUse::weights, "", "the error explains how to dequantise"},
    {"compression_config quantization", "all", MemberUse::weights, "",
     "other programs write it; the error explains how to dequantise"},

    {"attn_pdrop embd_pdrop resid_pdrop", "gpt2", MemberUse::ignored, "",
     "dropout in training, which Lockstep does not have"},
    {"attention_dropout", kNotGpt2, MemberUse::ignored, "",
     "dropout in training, which Lockstep does not have"},
    {"pad_token_id", "all", MemberUse::ignored, "", "see [padding](#the-padding-token)"},
    {"bos_token_id eos_token_id", "all", MemberUse::ignored, "", "tokens of generation"},
    {"reorder_and_upcast_attn", "gpt2", MemberUse::ignored, "", "rounding of attention"},
    {"summary_activation summary_first_dropout summary_proj_to_labels summary_type "
     "summary_use_proj",
     "gpt2", MemberUse::ignored, "", "a head for classification"},
    {"pretraining_tp", "llama3", MemberUse::ignored, "", "the split of a matrix product"},
    {"id2label label2id num_labels problem_type", "all", MemberUse::ignored, "",
     "a head for classification"},
    {"dtype torch_dtype", "all", MemberUse::ignored, "", "the type is that of each tensor"},
    {"architectures auto_map name_or_path transformers_version", "all", MemberUse::ignored, "",
     "where the model comes from; its own code is not run"},
    {"attn_implementation experts_implementation fusion_config gradient_checkpointing "
     "chunk_size_feed_forward use_cache",
     "all", MemberUse::ignored, "", "how to compute, with the same result"},
    {"output_attentions output_hidden_states return_dict", "all", MemberUse::ignored, "",
     "what a call returns"},
    {"output_cross_attentions", "gpt2", MemberUse::ignored, "", "what a call returns"},
    {"is_encoder_decoder", "all", MemberUse::ignored, "", "read for other families"},
    {"mlp_layer_types num_heads", kWindowed, MemberUse::ignored, "", "read for other families"},
    {"head_dim partial_rotary_factor rope_parameters rope_scaling rope_theta", "gpt2",
     MemberUse::ignored, "", "read for other families"},
    {"mtp_layer_types vision_aspect_ratio vision_feature_layer vision_feature_select_strategy",
     "all", MemberUse::ignored, "", "read for other families"},
    {"base_model_ep_plan base_model_fsdp_plan base_model_pp_plan base_model_tp_plan", "all",
     MemberUse::ignored, "", "how to split the model over processes"},
    {"sub_configs_defaults", "all", MemberUse::ignored, "", "taken from the class alone"},
    {"default_rope_type default_theta", kNotGpt2, MemberUse::ignored, "",
     "taken from the class alone"},
    {"ignore_keys_at_rope_validation", kNotGpt2, MemberUse::ignored, "",
     "a check of the table of RoPE settings"},
    {"allow_global_per_layer_attribute_access serialize_explicit_per_layer_config", "all",
     MemberUse::ignored, "", "access to `per_layer_config`"},
};

}  // namespace lockstep::testing

// Any config.json is rejected, or gives a model that can be written as a config.json again.
#include "model/families.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::config_fuzz {

// Each seed is a file, in several literals.
Seeds seeds() {
  // NOLINTBEGIN(bugprone-suspicious-missing-comma)
  return {
      R"({"model_type":"gpt2","n_layer":2,"n_embd":12,"n_head":3,"n_inner":null,"n_positions":8,)"
      R"("vocab_size":9,"activation_function":"gelu_new","layer_norm_epsilon":1e-05})",
      R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":12,"num_attention_heads":6,)"
      R"("num_key_value_heads":2,"intermediate_size":8,"max_position_embeddings":16,)"
      R"("vocab_size":9,"rms_norm_eps":1e-05,"rope_theta":500000.0,"tie_word_embeddings":true,)"
      R"("rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
      R"("high_freq_factor":4.0,"original_max_position_embeddings":8}})",
      R"({"model_type":"qwen3","num_hidden_layers":1,"hidden_size":8,"num_attention_heads":2,)"
      R"("head_dim":6,"intermediate_size":8,"max_position_embeddings":16,"vocab_size":9,)"
      R"("rope_parameters":{"rope_type":"default","rope_theta":1000000.0},"hidden_act":"silu"})",
      R"({"model_type":"qwen2","num_hidden_layers":2,"hidden_size":12,"num_attention_heads":3,)"
      R"("num_key_value_heads":null,"intermediate_size":8,"max_position_embeddings":16,)"
      R"("vocab_size":9,"layer_types":["full_attention","attention"],"use_sliding_window":true,)"
      R"("sliding_window":null,"max_window_layers":1,"is_causal":true,"rope_theta":1e6,)"
      R"("original_max_position_embeddings":8,"rope_parameters":{"rope_type":"llama3",)"
      R"("rope_theta":1e6,"factor":8,"low_freq_factor":1,"high_freq_factor":4},"rope_scaling":)"
      R"({"type":"llama3","rope_type":"llama3","factor":8,"low_freq_factor":1,)"
      R"("high_freq_factor":4}})",
      R"({"model_type":"smollm3","num_hidden_layers":4,"hidden_size":8,"num_attention_heads":2,)"
      R"("intermediate_size":8,"max_position_embeddings":16,"vocab_size":9,)"
      R"("no_rope_layers":[true,1,1,false,0],"no_rope_layer_interval":4,"use_sliding_window":false})"};
  // NOLINTEND(bugprone-suspicious-missing-comma)
}

void check(std::string_view text) {
  const auto config = config_from_huggingface(Json::parse(text, "input"), "input");
  LOCKSTEP_CHECK(parameter_count(config) > 0 && flops_per_token(config, 8).causal > 0, "no size");
  const std::string written = config_to_huggingface(config).dump();
  must_accept([&] {
    const auto again = config_from_huggingface(Json::parse(written, "written"), "written");
    LOCKSTEP_CHECK(again == config, "reads back otherwise: ", written);
  });
}

const Target target("config", seeds, check);

}  // namespace lockstep::fuzz::config_fuzz

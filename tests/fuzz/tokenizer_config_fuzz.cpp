// Any tokenizer_config.json is rejected, or the tokens of its members are read.
#include "core/json.h"
#include "data/tokenizer/tokenizer_json.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::tokenizer_config_fuzz {

Seeds seeds() {
  return {R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false})",
          R"({"bos_token": null, "eos_token": {"__type": "AddedToken", "content": "<|e|>"},)"
          R"("added_tokens_decoder": {"0": {"content": "<|e|>", "special": true}}})",
          R"({"model_max_length": 1e30, "chat_template": "{% for m in messages %}\n"})"};
}

// The value of the member, read in another way.
std::string said(const Json& config, const char* key) {
  for (const auto& [name, value] : config.as_object()) {
    if (name != key || value.is_null()) continue;
    return value.is_string() ? value.as_string() : value.at("content").as_string();
  }
  return {};
}

void check(std::string_view text) {
  const auto config = parse_tokenizer_config(text, "input");
  const auto json = Json::parse(text, "input", 16);
  LOCKSTEP_CHECK(config.document_token == said(json, "bos_token"), config.document_token);
  LOCKSTEP_CHECK(config.end_token == said(json, "eos_token"), config.end_token);
}

const Target target("tokenizer_config", seeds, check);

}  // namespace lockstep::fuzz::tokenizer_config_fuzz

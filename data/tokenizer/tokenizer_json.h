// Reads a tokenizer.json of Hugging Face that is a byte pair encoding: of bytes (GPT-2, Llama 3,
// Qwen, SmolLM), or of characters with a fallback to bytes (Llama 2, Mistral, Gemma).
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "data/tokenizer/bpe_definition.h"

namespace lockstep {

// What tokenizer_config.json beside it says: names of tokens; empty: none.
struct TokenizerConfig {
  std::string document_token, end_token;  // bos_token, eos_token
};
// Throws DataError naming `where` for what is no such file.
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where);

// Throws DataError naming `where` and the member that is not as it should be, or that Lockstep does
// not read.
BpeDefinition parse_tokenizer_json(const Json& json, const std::string& where);

}  // namespace lockstep

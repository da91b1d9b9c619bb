// Reads a tokenizer.json of Hugging Face that is a byte pair encoding: of bytes (GPT-2, Llama 3,
// Qwen, SmolLM), or of characters with a fallback to bytes (Llama 2, Mistral, Gemma).
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "data/tokenizer/bpe_definition.h"

namespace lockstep {

// Token names in the tokenizer_config.json beside it; empty if missing.
struct TokenizerConfig {
  std::string document_token, end_token;  // bos_token, eos_token
};
// Throws DataError naming `where` for an invalid file.
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where);

// Returns bytes as the vocabulary of a byte-level tokenizer writes them: a visible character each.
std::string byte_level_text(std::string_view bytes);

// Throws DataError naming `where` and the invalid or unsupported member.
BpeDefinition parse_tokenizer_json(const Json& json, const std::string& where);

}  // namespace lockstep

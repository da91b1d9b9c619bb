// Reads tokenizers whose files list tokens by rank, as the package tiktoken has them. The pair of
// neighbours whose bytes together are the token of the lowest rank is merged first. Ids are ranks,
// plus the number of special tokens in a tekken.json.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "data/tokenizer/bpe_definition.h"

namespace lockstep {

// Whether `text` starts like a rank file: a token in base64, a space and its rank.
bool is_rank_file(std::string_view text);

// Reads lines of a token in base64, a space and its rank. Such a file has neither the word pattern
// nor special tokens. They are those that Meta and Qwen publish for Llama 3 (128,000 ranks) and
// Qwen (151,643 ranks). Throws DataError naming `where` and the line, or for another number of
// ranks.
BpeDefinition parse_rank_file(std::string_view text, const std::string& where);

// Whether `json` is a tekken.json of Mistral: its vocabulary is a list.
bool is_tekken(const Json& json);

// Reads a tekken.json, which has the pattern and the special tokens. Files up to version 7 may lack
// the special tokens; then those of the package mistral-common are used. Ranks beyond
// config.default_vocab_size are not used. Throws DataError naming `where` and the member.
BpeDefinition parse_tekken(const Json& json, const std::string& where);

}  // namespace lockstep

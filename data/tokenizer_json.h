// TokenizerJson: what a Hugging Face tokenizer.json says of a byte-level BPE (GPT-2, Llama 3,
// Qwen 2.5 and 3, SmolLM and their like), as plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/unicode.h"

namespace lockstep {

struct TokenizerJson {
  // One way of cutting text, of the parts that the one before it left.
  struct Step {
    enum class Kind : std::uint8_t {
      isolate,       // each match of the pattern, and what is between
      keep_matches,  // matches alone: what is between becomes no token
      drop_matches,  // what is between
      prefix_space,  // a space in front where there is none; no pattern
    } kind = Kind::isolate;
    std::string pattern;  // as Oniguruma reads it
  };

  std::vector<NormalForm> forms;  // one behind the other
  std::vector<Step> steps;
  std::unordered_map<std::string, std::int32_t> tokens;  // by their bytes; no special ones
  std::vector<Bpe::Merge> merges;
  bool whole_words = false;  // ignore_merges
  std::vector<AddedToken> added;

  std::int32_t find(std::string_view added_token) const;  // its id; -1: no added token is called so
  std::int32_t vocabulary() const;                        // all ids are below
};

// What tokenizer_config.json beside it says: names of tokens; empty: none.
struct TokenizerConfig {
  std::string document_token, end_token;  // bos_token, eos_token
};
// Throws DataError naming `where` for what is no such file.
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& where);

// Throws DataError naming `where` and the member that is not as it should be, or is of a kind that
// no byte-level BPE has.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& where);

}  // namespace lockstep

// BpeTokenizer: a byte-level BPE. Its ids are those of the package `tokenizers`, without the tokens
// that a post-processor adds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/split_pattern.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"

namespace lockstep {

class BpeTokenizer final : public Tokenizer {
 public:
  // Throws DataError naming what cannot be used.
  BpeTokenizer(const TokenizerJson& json, About about);

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Memory& memory) const override;
  void encode_plain(std::string_view text, std::vector<std::int32_t>& ids,
                    Memory& memory) const override;
  // Known of the patterns that GPT-2, Llama 3 and Qwen cut words by, and of digits.
  std::size_t last_cut(std::string_view text) const override;
  std::string_view bytes_of(std::int32_t id) const override;
  bool is_special(std::int32_t id) const override;
  std::string_view missing_bytes() const override { return bpe_.missing_bytes(); }

 private:
  struct Step {
    TokenizerJson::Step::Kind kind{};
    std::size_t pattern = 0;
  };
  struct Added {
    AddedTokens before_forms, behind_forms;
  };
  std::string with_forms(std::string text) const;
  Added added_of(const std::vector<AddedToken>& tokens) const;
  void encode_with(const Added& added, std::string_view text, std::vector<std::int32_t>& ids,
                   Memory& memory) const;
  std::string with_replacements(std::string_view text, Memory& memory) const;
  void encode_part(std::string_view text, std::size_t step, std::vector<std::int32_t>& ids,
                   Memory& memory) const;

  std::vector<NormalForm> forms_;
  std::vector<Step> steps_;
  std::vector<SplitPattern> patterns_;
  Bpe bpe_;
  Added added_, plain_;                // all; without the special ones
  std::vector<std::string> bytes_of_;  // by id; empty: no token
  std::vector<bool> is_special_;
  bool can_cut_ = false;
  bool has_letter_tokens_ = false;  // added ones that begin with a letter
};

}  // namespace lockstep

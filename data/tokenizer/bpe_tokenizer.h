// BpeTokenizer is byte pair encoding of texts. Its ids are those of the packages `tokenizers`,
// tiktoken and mistral-common, without the tokens that these add around a text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/bpe_definition.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/split_pattern.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

class BpeTokenizer final : public Tokenizer {
 public:
  // Throws DataError naming an unsupported part of the definition.
  BpeTokenizer(const BpeDefinition& definition, About about);

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Memory& memory) const override;
  void encode_plain(std::string_view text, std::vector<std::int32_t>& ids,
                    Memory& memory) const override;
  // Supports the word patterns of GPT-2, Llama 3 and Qwen, and digits.
  std::size_t last_cut(std::string_view text) const override;
  std::string_view bytes_of(std::int32_t id) const override;
  bool is_special(std::int32_t id) const override;
  std::string_view missing_bytes() const override { return bpe_.missing_bytes(); }

 private:
  using Place = Bpe::Place;
  struct Step {
    BpeDefinition::Step what;
    std::optional<SplitPattern> pattern;
  };
  struct Added {
    AddedTokens before_normalizers, behind_normalizers;
  };
  static Added added_of(const std::vector<AddedToken>& tokens);
  void encode_with(const Added& added, std::string_view text, std::vector<std::int32_t>& ids,
                   Memory& memory) const;
  std::string with_replacements(std::string_view text, Memory& memory) const;
  void encode_part(std::string_view text, std::size_t step, Place place,
                   std::vector<std::int32_t>& ids, Memory& memory) const;
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids, Memory& memory) const;

  Normalizers normalizers_;
  std::vector<Step> steps_;
  Bpe bpe_;
  bool marks_begin_words_ = false;     // no merge spans the place before a run of kMark
  Added added_, plain_;                // all tokens; those without the special ones
  std::vector<std::string> bytes_of_;  // by id; empty: no token
  std::vector<bool> is_special_;
  bool can_cut_ = false;
  bool has_letter_tokens_ = false;  // added tokens that start with a letter
};

}  // namespace lockstep

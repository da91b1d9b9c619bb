// BpeDefinition: what a tokenizer's file says of a byte pair encoding, as plain values: how a text
// is normalized and cut into words, which tokens there are, and which pairs of them are merged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"

namespace lockstep {

inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;  // ids are below

struct BpeDefinition {
  // One change of a text before it is cut into words.
  struct Normalizer {
    enum class Kind : std::uint8_t { form, prepend, replace } kind = Kind::form;
    NormalForm form = NormalForm::nfc;
    std::string pattern = {};  // of replace, as Oniguruma reads it
    std::string content = {};  // of prepend and replace
  };

  // One way of cutting text, applied to the parts that the step before it made.
  struct Step {
    enum class Kind : std::uint8_t {
      isolate,              // matches of the pattern and the texts between them are parts
      keep_matches,         // matches are parts; the texts between them become no token
      drop_matches,         // the texts between matches are parts
      merge_with_previous,  // a match is the end of the part before it
      merge_with_next,      // a match is the start of the part after it
      prefix,               // `content` is put in front of a part that does not begin with it
      replace,              // matches become `content`
    } kind = Kind::isolate;
    std::string pattern = {};  // as Oniguruma reads it; prefix has none
    std::string content = {};  // of prefix and replace
    bool is_first = false;     // prefix: only the part at the front of a document gets it
  };

  std::vector<Normalizer> normalizers;  // applied in their order
  std::vector<Step> steps;
  // By their bytes. With byte_tokens the key is the token as the file writes it. No special tokens.
  std::unordered_map<std::string, std::int32_t> tokens;
  // The tokens <0x00> to <0xFF> of a tokenizer whose words begin as characters: a character without
  // a token becomes those of its bytes. Empty: words begin as bytes.
  std::vector<std::int32_t> byte_tokens;
  std::vector<Bpe::Merge> merges;
  bool whole_words = false;  // a word that is a token is that token
  std::vector<AddedToken> added;

  std::vector<Normalizer> decoded;  // with byte_tokens: of a token's text when it is decoded
  bool drops_first_space = false;   // decoding drops a space at the front of a text

  // The names of the tokens that begin and end a text, as far as the file's kind tells; or "".
  std::string begin_token, end_token;

  std::int32_t find(std::string_view added_token) const;  // its id; -1: no added token is called so
  std::int32_t vocabulary() const;                        // all ids are below
};

}  // namespace lockstep

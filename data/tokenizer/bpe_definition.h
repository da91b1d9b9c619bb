// BpeDefinition has the content of a tokenizer file for byte pair encoding as plain values:
// normalization, splitting into words, tokens, and merges.
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

inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;  // ids are below this

struct BpeDefinition {
  // One change of a text before it is cut into words.
  struct Normalizer {
    enum class Kind : std::uint8_t { form, prepend, replace } kind = Kind::form;
    NormalForm form = NormalForm::nfc;
    std::string pattern = {};  // for replace, in the syntax of Oniguruma
    std::string content = {};  // for prepend and replace
  };

  // One step of splitting text, applied to the parts that the previous step made.
  struct Step {
    enum class Kind : std::uint8_t {
      isolate,              // matches of the pattern and the texts between them are parts
      keep_matches,         // matches are parts; the texts between them become no token
      drop_matches,         // the texts between matches are parts
      merge_with_previous,  // a match is the end of the part before it
      merge_with_next,      // a match is the start of the part after it
      prefix,               // `content` is put before a part that does not start with it
      replace,              // matches become `content`
    } kind = Kind::isolate;
    std::string pattern = {};  // in the syntax of Oniguruma; unused for prefix
    std::string content = {};  // for prefix and replace
    bool is_first = false;     // prefix: only the part at the start of a document gets it
  };

  std::vector<Normalizer> normalizers;  // applied in order
  std::vector<Step> steps;
  // Tokens by their bytes. With byte_tokens the key is the token as the file writes it. Special
  // tokens are not included.
  std::unordered_map<std::string, std::int32_t> tokens;
  // The tokens <0x00> to <0xFF> of a tokenizer whose words start as characters. A character without
  // a token becomes the tokens of its bytes. Empty: words start as bytes.
  std::vector<std::int32_t> byte_tokens;
  std::vector<Bpe::Merge> merges;
  bool whole_words = false;  // a word that is a token becomes that token
  std::vector<AddedToken> added;

  std::vector<Normalizer> decoded;  // with byte_tokens: changes of a token's text in decoding
  bool drops_first_space = false;   // decoding drops a space at the start of a text

  // Names of the tokens that start and end a text, if the kind of file defines them; else "".
  std::string begin_token, end_token;

  // Returns the id of an added token; -1 if it does not exist.
  std::int32_t find(std::string_view added_token) const;
  std::int32_t vocabulary() const;  // all ids are below this
};

}  // namespace lockstep

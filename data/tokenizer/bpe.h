// Bpe is byte pair encoding of words. A word starts as its bytes or its characters, each a token.
// While two neighbours can be merged, the pair with the lowest rank (if equal, the leftmost)
// becomes one token. Sennrich et al. 2016, arXiv:1508.07909; on bytes Radford et al. 2019 (GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "data/input_defects.h"

namespace lockstep {

// A text has a byte that the tokenizer has no token for.
class MissingByte : public DataError {
  using DataError::DataError;
};

class Bpe {
 public:
  struct Merge {
    std::int32_t left = 0, right = 0, merged = 0;
    std::uint32_t rank = 0;
  };
  // `tokens`: bytes and id of each. `merges`: if a pair appears twice, the last one counts.
  //   whole_words: a word that is a token becomes that token, whatever the merges are
  //                (tokenizer.json: ignore_merges)
  //   byte_tokens: 256 ids, or empty. If given, a word starts as characters, and a character
  //                without a token becomes the tokens of its bytes
  Bpe(const std::unordered_map<std::string, std::int32_t>& tokens, const std::vector<Merge>& merges,
      bool whole_words, const std::vector<std::int32_t>& byte_tokens = {});

  // The place of a text in its document: at the start, after a special token, or after other text.
  enum class Place : std::uint8_t { front, behind_token, behind_text };
  // State that a thread keeps between words: the tokens of recent words.
  class Memory;

  // Appends the tokens of `word` in O(n log n) of its bytes. If words start as characters, `word`
  // must be valid UTF-8. Throws MissingByte if a byte has no token, unless `memory` drops such
  // bytes; then it counts them.
  void encode(std::string_view word, std::vector<std::int32_t>& ids, Memory& memory) const;

  const std::string& missing_bytes() const { return missing_; }  // in ascending order

 private:
  struct Found {
    std::uint32_t rank = UINT32_MAX;
    std::int32_t merged = 0;
  };
  std::string without_missing(std::string_view word, Memory& memory) const;
  std::int32_t token_of(char byte) const { return of_byte_[static_cast<unsigned char>(byte)]; }
  Found find(std::int32_t left, std::int32_t right) const;
  std::size_t begin(std::string_view word, std::int32_t* tokens) const;
  void encode_anew(std::string_view word, std::vector<std::int32_t>& ids, Memory& memory) const;
  void encode_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  void encode_long(std::string_view word, std::vector<std::int32_t>& ids) const;

  struct Slot {
    std::uint64_t pair = UINT64_MAX;
    Found found{};
  };
  std::array<std::int32_t, 256> of_byte_{};  // token of each byte; -1: none
  // Tokens of characters beyond ASCII, by their bytes; empty if words start as bytes.
  std::unordered_map<std::uint32_t, std::int32_t> of_character_;
  std::string missing_;                                  // bytes without a token
  std::vector<Slot> slots_;                              // open addressing, a power of two
  std::unordered_map<std::string, std::int32_t> whole_;  // words that are tokens
};

class Bpe::Memory {
 public:
  explicit Memory(MissingBytes how = MissingBytes::refuse)
      : missing_bytes(how), entries_(kEntries) {}

  MissingBytes missing_bytes;
  Place place = Place::front;  // place of the next text; a tokenizer may put a space before it
  std::int64_t missing = 0;    // number of dropped bytes, or of replaced characters

 private:
  friend class Bpe;
  static constexpr std::size_t kEntries = std::size_t{1} << 15, kMostBytes = 23, kMostIds = 9;
  struct Entry {
    std::uint8_t bytes = 0, count = 0;  // 0: empty
    std::array<char, kMostBytes> word{};
    std::array<std::int32_t, kMostIds> ids{};
  };
  std::vector<Entry> entries_;  // by the hash of the word; a newer word replaces an older one
};

}  // namespace lockstep

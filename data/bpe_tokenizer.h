// BpeTokenizer: a byte-level BPE as Hugging Face's tokenizer.json describes it: GPT-2, Llama 3,
// Qwen 2.5 and 3, SmolLM and their like. The ids are those of the package `tokenizers` without the
// tokens that a post-processor adds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/split_pattern.h"
#include "data/unicode.h"

namespace lockstep {

class BpeTokenizer {
 public:
  // Throws DataError naming the file and the member that is not as it should be, or is of a kind
  // that no byte-level BPE has.
  explicit BpeTokenizer(const std::filesystem::path& file);
  // `where`: in errors.
  BpeTokenizer(std::string_view json, const std::string& where);

  // What a thread keeps from call to call.
  struct Memory {
    Bpe::Memory words;
  };
  // Appends the tokens of a document. What is no UTF-8 counts as U+FFFD.
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Memory& memory) const;
  std::vector<std::int32_t> encode(std::string_view text) const;

  // Their bytes; of special tokens their names, or nothing. An id that is no token throws
  // DataError.
  enum class Specials : std::uint8_t { named, left_out };
  std::string decode(std::span<const std::int32_t> ids, Specials specials) const;

  std::int32_t vocabulary() const { return static_cast<std::int32_t>(bytes_of_.size()); }
  // -1: no token is called so.
  std::int32_t find(std::string_view content) const;

 private:
  // Cuts words further; the bytes of what is left are encoded.
  struct Step {
    enum class Kind : std::uint8_t { isolate, keep_matches, drop_matches, prefix_space } kind;
    std::size_t pattern = 0;
  };
  void read_normalizer(const class Json& json);
  void read_pre_tokenizer(const Json& json);
  void read_split(const Json& json);
  void add_pattern(Step::Kind kind, const std::string& pattern);
  void read_model(const Json& json, const Json* added);
  std::string with_forms(std::string text) const;
  void encode_part(std::string_view text, std::size_t step, std::vector<std::int32_t>& ids,
                   Memory& memory) const;

  std::vector<NormalForm> forms_;
  std::vector<SplitPattern> patterns_;
  std::vector<Step> steps_;
  bool is_byte_level_ = false;
  std::vector<Bpe> bpe_;  // one
  AddedTokens before_forms_, behind_forms_;
  std::vector<AddedToken> added_;
  std::vector<std::string> bytes_of_;  // by id; empty: no token
  std::vector<bool> is_special_;
};

}  // namespace lockstep

// Tokenizer converts text to tokens and back: `bytes`, or the byte pair encoding of a file
// (docs/tokenizers.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/bpe.h"

namespace lockstep {

class Tokenizer {
 public:
  // State that a thread keeps between calls.
  using Memory = Bpe::Memory;

  struct About {
    std::string name;                  // "bytes", "gpt2"
    std::string hash;                  // XXH3-128 of its definition
    std::int32_t vocabulary = 0;       // ids are below this
    std::int32_t document_token = -1;  // is before each document; -1: unknown
    std::int32_t end_token = -1;       // a model writes it to end its text; -1: none
    std::int32_t prefix_token = -1;  // prefix of a text without context, as in lm_eval; -1: unknown
    bool drops_first_space = false;  // decode() drops the space that encode() puts before a text
  };
  explicit Tokenizer(About about) : about_(std::move(about)) {}
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  const About& about() const { return about_; }

  // Appends the tokens of `text`, without document tokens. Except for `bytes`, invalid UTF-8 is
  // read as U+FFFD, and the name of a special token becomes that token. From any thread. Throws
  // MissingByte for a byte without a token, unless `memory` defines how to handle it.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids,
                      Memory& memory) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const;

  // The same for untrusted text: the name of a special token is plain text.
  virtual void encode_plain(std::string_view text, std::vector<std::int32_t>& ids,
                            Memory& memory) const = 0;

  // Returns the last place at which `text` can be split so that both parts together have the same
  // tokens, whatever text follows; 0 if unknown.
  virtual std::size_t last_cut(std::string_view text) const = 0;

  // Returns the bytes of a token; for a special token its name; empty if no token has the id.
  virtual std::string_view bytes_of(std::int32_t id) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  // Returns the bytes that have no token, in ascending order; usually none.
  virtual std::string_view missing_bytes() const { return {}; }

  // Returns the bytes of all tokens of a text. Special tokens are left out, or become their names.
  enum class Specials : std::uint8_t { left_out, named };
  std::string decode(std::span<const std::int32_t> ids,
                     Specials specials = Specials::left_out) const;

 private:
  About about_;
};

// ByteTokenizer has the ids 0 to 255 for bytes, and 256 to start a document. It is lossless for any
// file, valid UTF-8 or not.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kDocumentToken = 256;
  static constexpr std::int32_t kVocabulary = 257;

  ByteTokenizer();
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int32_t>& ids, Memory& memory) const override;
  void encode_plain(std::string_view text, std::vector<std::int32_t>& ids,
                    Memory& memory) const override {
    encode(text, ids, memory);
  }
  std::size_t last_cut(std::string_view text) const override { return text.size(); }
  std::string_view bytes_of(std::int32_t id) const override;
  bool is_special(std::int32_t id) const override { return id == kDocumentToken; }
};

// Opens `what`: "bytes", the file of a tokenizer, or a directory with one. The document token is
// `document_token`, or if that is empty the first of:
// - bos_token in tokenizer_config.json beside it
// - if that file has an eos_token: <|endoftext|> if it exists, else the eos_token
// - <|begin_of_text|> or <|endoftext|>
// Throws DataError naming the problem, UsageError if no token is named `document_token`.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& what,
                                          const std::string& document_token = "");

}  // namespace lockstep

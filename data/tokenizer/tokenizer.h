// Tokenizer: text becomes tokens, and tokens text: `bytes`, or the byte pair encoding of a file
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
  // What a thread keeps from call to call.
  using Memory = Bpe::Memory;

  struct About {
    std::string name;                  // "bytes", "gpt2"
    std::string hash;                  // XXH3-128 of what defines it
    std::int32_t vocabulary = 0;       // ids are below
    std::int32_t document_token = -1;  // stands in front of a document; -1: none is known
    std::int32_t end_token = -1;       // a model that writes it has ended its text; -1: none
    std::int32_t prefix_token = -1;    // lm_eval's, of a text behind nothing; -1: none is known
    bool drops_first_space = false;    // decode() drops the space that encode() puts in front
  };
  explicit Tokenizer(About about) : about_(std::move(about)) {}
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  const About& about() const { return about_; }

  // Appends the tokens of `text`, without document tokens. Except for `bytes`, what is no UTF-8
  // counts as U+FFFD, and the name of a special token in the text is that token. From any thread.
  // Throws MissingByte for a byte without a token, unless `memory` says what becomes of it.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& ids,
                      Memory& memory) const = 0;
  std::vector<std::int32_t> encode(std::string_view text) const;

  // The same, but the name of a special token is text like any other: of what is not to be trusted.
  virtual void encode_plain(std::string_view text, std::vector<std::int32_t>& ids,
                            Memory& memory) const = 0;

  // The last place at which `text` may be cut in two, whatever follows it, that become the same
  // tokens apart as together; 0: none is known.
  virtual std::size_t last_cut(std::string_view text) const = 0;

  // The bytes that a token stands for, of a special one its name; none where no token has the id.
  virtual std::string_view bytes_of(std::int32_t id) const = 0;
  virtual bool is_special(std::int32_t id) const = 0;
  // The bytes that have no token, rising: none, as a rule.
  virtual std::string_view missing_bytes() const { return {}; }

  // The bytes of tokens, of special ones their names, or nothing; of a whole text.
  enum class Specials : std::uint8_t { left_out, named };
  std::string decode(std::span<const std::int32_t> ids,
                     Specials specials = Specials::left_out) const;

 private:
  About about_;
};

// Ids 0 to 255 are bytes, 256 starts a document. Nothing is lost: any file, valid UTF-8 or not, is
// its own tokens.
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

// `what`: "bytes", the file of a tokenizer, or a directory that holds one. The document token is
// the one called `document_token`; where that is empty, the bos_token of tokenizer_config.json
// beside it; where it has none but an eos_token, <|endoftext|> if there is one, else that; where it
// names neither <|begin_of_text|> or <|endoftext|>. Throws DataError naming what is wrong,
// UsageError where no token is called `document_token`.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& what,
                                          const std::string& document_token = "");

}  // namespace lockstep

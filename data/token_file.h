// TokenFile: one shard of tokens, read by pread at 64-bit offsets. Its size is checked against its
// header when it is opened, its ids against the vocabulary when they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/file.h"

namespace lockstep {

// How documents are told apart.
enum class Boundary : std::uint8_t {
  front,   // a token in front of each
  behind,  // a token behind each
  listed,  // only by the list of their ends beside the shard
  none,    // it is not said: all is one document
};

struct TokenFormat {
  std::string name;             // "llm.c GPT-2", "nanoGPT", "Megatron", ..., or the tokenizer's
  int header_bytes = 0;         // 1024 or 0
  int token_bytes = 2;          // 1, 2, 4 or 8, little-endian
  std::int64_t vocabulary = 0;  // 0: the format does not say
  Boundary boundary = Boundary::front;
  std::int32_t boundary_token = 0;
  bool is_signed = false;  // a negative id is refused
};

const char* name(Boundary boundary);

// The header of an llm.c shard is int32[256]: magic, version, tokens, zeros.
inline constexpr int kShardHeaderBytes = 1024;
inline constexpr std::int32_t kShardMagicU16 = 20240520, kShardVersionU16 = 1;
inline constexpr std::int32_t kShardMagicU32 = 20240801, kShardVersionU32 = 7;

// What llm.c's formats mean by their magic.
inline constexpr std::int32_t kGpt2Vocabulary = 50257, kGpt2EndOfText = 50256;
inline constexpr std::int32_t kLlama3Vocabulary = 128256, kLlama3BeginOfText = 128000;

class TokenFile {
 public:
  // Recognises llm.c's two formats and LLMQ's by their magic; a headerless file (nanoGPT) must be
  // called *.bin. Throws DataError for anything else, or a size that is not what the header says.
  explicit TokenFile(ReadFile file);
  explicit TokenFile(const std::filesystem::path& path) : TokenFile(ReadFile(path)) {}

  // A shard whose bytes are laid out as `format` says and mean what it says. Where the format has
  // no header the tokens are all of the file, whatever it is called.
  TokenFile(ReadFile file, const TokenFormat& format);

  const ReadFile& file() const { return file_; }
  const TokenFormat& format() const { return format_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t offset_of(std::int64_t token) const;  // in bytes

  // Where the bits of a loss mask stand behind the tokens (LLMQ); 0: there is none.
  std::int64_t mask_offset() const { return mask_offset_; }

  // Fills `out` with the tokens from `first`. Throws DataError naming file, byte and token when one
  // is not below `vocabulary`, or the file ends before.
  void read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary) const;

 private:
  using Header = std::span<const std::int32_t, kShardHeaderBytes / 4>;
  void recognise();
  void read_llmc_header(Header header);
  void read_llmq_header(Header header);
  void take_all();  // headerless
  void check_size(std::int64_t expected) const;
  std::int64_t value_at(std::int64_t token) const;  // as it is stored

  ReadFile file_;
  TokenFormat format_;
  std::int64_t tokens_ = 0, mask_offset_ = 0;
};

}  // namespace lockstep

// TokenFile is one shard of tokens, read by pread at 64-bit offsets. Its size is checked against
// its header when it is opened, and its ids against the vocabulary when they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/file.h"

namespace lockstep {

// How documents are separated.
enum class Boundary : std::uint8_t {
  front,   // a token before each
  behind,  // a token after each
  listed,  // by the list of document ends beside the shard
  none,    // unknown: the shard is one document
};

struct TokenFormat {
  std::string name;      // "llm.c GPT-2", "nanoGPT", "Megatron", ..., or that of the tokenizer
  int header_bytes = 0;  // 1024 or 0
  int token_bytes = 2;   // 1, 2, 4 or 8, little-endian
  std::int64_t vocabulary = 0;  // 0: the format does not define it
  Boundary boundary = Boundary::front;
  std::int32_t boundary_token = 0;
  bool is_signed = false;  // negative ids are errors
};

const char* name(Boundary boundary);

// The header of an llm.c shard is int32[256]: magic, version, tokens, zeros.
inline constexpr int kShardHeaderBytes = 1024;
inline constexpr std::int32_t kShardMagicU16 = 20240520, kShardVersionU16 = 1;
inline constexpr std::int32_t kShardMagicU32 = 20240801, kShardVersionU32 = 7;

// Vocabularies and document tokens that the magic of llm.c implies.
inline constexpr std::int32_t kGpt2Vocabulary = 50257, kGpt2EndOfText = 50256;
inline constexpr std::int32_t kLlama3Vocabulary = 128256, kLlama3BeginOfText = 128000;

class TokenFile {
 public:
  // Recognizes the two formats of llm.c and that of LLMQ by their magic; a headerless file
  // (nanoGPT) must be named *.bin. Throws DataError for other files, and if the size contradicts
  // the header.
  explicit TokenFile(ReadFile file);
  explicit TokenFile(const std::filesystem::path& path) : TokenFile(ReadFile(path)) {}

  // Opens a shard with the layout and meaning of `format`. If the format has no header, the tokens
  // are the whole file, whatever its name.
  TokenFile(ReadFile file, const TokenFormat& format);

  const ReadFile& file() const { return file_; }
  const TokenFormat& format() const { return format_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t offset_of(std::int64_t token) const;  // byte offset

  // Byte offset of the loss mask after the tokens (LLMQ); 0 without one.
  std::int64_t mask_offset() const { return mask_offset_; }

  // Fills `out` with the tokens from `first`. Throws DataError naming file, byte and token if an id
  // is not below `vocabulary`, or if the file is too short.
  void read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary) const;

 private:
  using Header = std::span<const std::int32_t, kShardHeaderBytes / 4>;
  void recognise();
  void read_llmc_header(Header header);
  void read_llmq_header(Header header);
  void take_all();  // reads a headerless file
  void check_size(std::int64_t expected) const;
  std::int64_t value_at(std::int64_t token) const;  // stored value, not checked

  ReadFile file_;
  TokenFormat format_;
  std::int64_t tokens_ = 0, mask_offset_ = 0;
};

}  // namespace lockstep

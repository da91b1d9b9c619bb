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
};

struct TokenFormat {
  std::string name;             // "llm.c GPT-2", "llm.c Llama 3", "nanoGPT", "bytes"
  int header_bytes = 0;         // 1024 or 0
  int token_bytes = 2;          // u16 or u32, little-endian
  std::int64_t vocabulary = 0;  // 0: the format does not say
  Boundary boundary = Boundary::front;
  std::int32_t boundary_token = 0;
};

const char* name(Boundary boundary);

// The header of an llm.c shard is int32[256]: magic, version, tokens, zeros.
inline constexpr int kShardHeaderBytes = 1024;
inline constexpr std::int32_t kShardMagicU16 = 20240520, kShardVersionU16 = 1;
inline constexpr std::int32_t kShardMagicU32 = 20240801, kShardVersionU32 = 7;

class TokenFile {
 public:
  // Recognises llm.c's two formats by their magic; a headerless file (nanoGPT) must be called
  // *.bin. Throws DataError for anything else, or a size that is not what the header says.
  explicit TokenFile(const std::filesystem::path& path);

  // A shard whose bytes are laid out as `format` says and mean what it says.
  TokenFile(const std::filesystem::path& path, const TokenFormat& format);

  const ReadFile& file() const { return file_; }
  const TokenFormat& format() const { return format_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t offset_of(std::int64_t token) const;  // in bytes

  // Fills `out` with the tokens from `first`. Throws DataError naming file, byte and token when one
  // is not below `vocabulary`, or the file ends before.
  void read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary) const;

 private:
  void read_header(std::span<const std::int32_t, kShardHeaderBytes / 4> header);

  ReadFile file_;
  TokenFormat format_;
  std::int64_t tokens_ = 0;
};

}  // namespace lockstep

// Shards and datasets for tests, written by other means than data/pack.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/hash.h"
#include "data/manifest.h"
#include "tests/files.h"

namespace lockstep::testing {

using Tokens = std::vector<std::int32_t>;

inline void append(std::string& bytes, std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i)
    bytes.push_back(static_cast<char>(value >> (8 * i)));
}

inline std::string header(std::int32_t magic, std::int32_t version, std::int64_t tokens) {
  std::string bytes;
  for (const std::int64_t word : {std::int64_t{magic}, std::int64_t{version}, tokens})
    append(bytes, static_cast<std::uint64_t>(word), 4);
  bytes.resize(1024, '\0');
  return bytes;
}

inline std::string body(const Tokens& tokens, int token_bytes) {
  std::string bytes;
  for (const auto token : tokens)
    append(bytes, static_cast<std::uint32_t>(token), token_bytes);
  return bytes;
}

inline std::string gpt2_shard(const Tokens& tokens) {
  return header(20240520, 1, static_cast<std::int64_t>(tokens.size())) + body(tokens, 2);
}
inline std::string llama3_shard(const Tokens& tokens) {
  return header(20240801, 7, static_cast<std::int64_t>(tokens.size())) + body(tokens, 4);
}

inline Tokens random_tokens(std::int64_t count, std::int32_t vocabulary, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Tokens tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary)));
  return tokens;
}

// Bytes in documents of 1 to 40 tokens, each behind a 256.
inline Tokens random_documents(std::int64_t count, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Tokens tokens;
  while (static_cast<std::int64_t>(tokens.size()) < count) {
    tokens.push_back(256);
    for (auto length = random() % 40; length > 0; --length)
      tokens.push_back(static_cast<std::int32_t>(random() % 256));
  }
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

inline Tokens slice(const Tokens& tokens, std::int64_t first, std::int64_t count) {
  return {tokens.begin() + first, tokens.begin() + first + count};
}

// Writes `tokens`, documents of bytes, as a dataset in shards of `shard_tokens`. A document ends
// where the next begins, and at the end of all.
inline Manifest write_dataset(const std::filesystem::path& directory, const Tokens& tokens,
                              std::int64_t shard_tokens, Boundary boundary = Boundary::front) {
  std::filesystem::create_directories(directory);
  const auto total = static_cast<std::int64_t>(tokens.size());
  Manifest manifest;
  manifest.format = {"bytes", 1024, 2, 257, boundary, boundary == Boundary::listed ? -1 : 256};
  manifest.tokenizer_hash = hash_hex("bytes");
  for (std::int64_t first = 0; first < total; first += shard_tokens) {
    Manifest::Shard shard;
    shard.file = str("part_", 100 + manifest.shards.size(), ".bin");
    shard.tokens = std::min(shard_tokens, total - first);
    std::string ends;
    for (auto end = first + 1; end <= first + shard.tokens; ++end) {
      if (end != total && tokens[static_cast<std::size_t>(end)] != 256) continue;
      append(ends, static_cast<std::uint64_t>(end - first), 8);
      ++shard.documents;
    }
    const auto bytes = gpt2_shard(slice(tokens, first, shard.tokens));
    spit(directory / shard.file, bytes);
    spit(directory / ends_name(shard.file), ends);
    shard.hash = hash_hex(bytes);
    shard.ends_hash = hash_hex(ends);
    manifest.shards.push_back(shard);
  }
  spit(directory / kManifestName, manifest.dump());
  return manifest;
}

}  // namespace lockstep::testing

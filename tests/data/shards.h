// Shards and datasets for tests, written by other means than data/pack, and what tests read of
// them.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "core/hash.h"
#include "data/dataset.h"
#include "data/manifest.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/captured.h"
#include "tests/files.h"
#include "tests/wording.h"

namespace lockstep::testing {

using Tokens = std::vector<std::int32_t>;
using Documents = std::vector<Tokens>;
using Mask = std::vector<std::uint8_t>;

// A test with a directory of its own, where many shards cost little.
class DirectoryTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (directory_ / name).string(); }
  // Creates the directories that the file lies in.
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((directory_ / name).parent_path());
    spit(directory_ / name, bytes);
  }

  TemporaryDirectory directory_{fast_directory()};
};

// The lines that `act` logs, without their times. Lines of progress are left out: whether there are
// any depends on the machine.
template <class Act>
std::string logged(const Act& act) {
  std::istringstream log(stderr_of(act));
  std::string text;
  for (std::string line; std::getline(log, line);)
    if (line.find("/s | eta ") == std::string::npos) text += line + "\n";
  return text;
}

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

inline std::string u64s(const std::vector<std::int64_t>& values) {
  std::string bytes;
  for (const auto value : values)
    append(bytes, static_cast<std::uint64_t>(value), 8);
  return bytes;
}

// Bit t % 8 of byte t / 8.
inline std::string mask_bits(const Mask& mask) {
  std::string bytes((mask.size() + 7) / 8, '\0');
  for (std::size_t t = 0; t < mask.size(); ++t)
    bytes[t / 8] = static_cast<char>(bytes[t / 8] | mask[t] << (t % 8));
  return bytes;
}

inline Mask random_mask(std::size_t count, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Mask mask(count);
  for (auto& bit : mask)
    bit = static_cast<std::uint8_t>(random() % 2);
  return mask;
}

// LLMQ's header, filled with stars up to the line's end as its writer does it.
inline std::string llmq_header(std::int32_t version, std::int64_t tokens, std::int32_t vocabulary,
                               std::int32_t has_masks) {
  std::string bytes = "BIN.TOK\n";
  for (const std::int64_t word : {std::int64_t{version}, std::int64_t{4}, tokens,
                                  std::int64_t{vocabulary}, std::int64_t{has_masks}})
    append(bytes, static_cast<std::uint64_t>(word), 4);
  bytes.resize(1023, '*');
  return bytes + '\n';
}

// A Megatron index. code: of the type of tokens; lengths: of sequences; documents: the first
// sequence of each, and the number of all.
inline std::string megatron_index(int code, int token_bytes,
                                  const std::vector<std::int64_t>& lengths,
                                  const std::vector<std::int64_t>& documents) {
  std::string bytes("MMIDIDX\0\0", 9);
  append(bytes, 1, 8);
  append(bytes, static_cast<std::uint64_t>(code), 1);
  append(bytes, lengths.size(), 8);
  append(bytes, documents.size(), 8);
  for (const auto length : lengths)
    append(bytes, static_cast<std::uint64_t>(length), 4);
  std::int64_t offset = 0;
  for (const auto length : lengths) {
    append(bytes, static_cast<std::uint64_t>(offset), 8);
    offset += length * token_bytes;
  }
  return bytes + u64s(documents);
}

// `count` documents of 1 to 40 tokens.
inline Documents random_texts(std::int64_t count, std::int32_t vocabulary, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Documents documents;
  for (std::int64_t i = 0; i < count; ++i)
    documents.push_back(random_tokens(1 + static_cast<std::int64_t>(random() % 40), vocabulary,
                                      seed * 1000 + static_cast<std::uint64_t>(i)));
  return documents;
}

inline Tokens joined(const Documents& documents) {
  Tokens tokens;
  for (const auto& document : documents)
    tokens.insert(tokens.end(), document.begin(), document.end());
  return tokens;
}

// NAME.bin and NAME.idx, one sequence a document.
inline void write_megatron(const std::filesystem::path& base, const Documents& documents,
                           int code = 8, int token_bytes = 2) {
  std::filesystem::create_directories(base.parent_path());
  std::vector<std::int64_t> lengths, firsts{0};
  for (const auto& document : documents) {
    lengths.push_back(std::ssize(document));
    firsts.push_back(std::ssize(lengths));
  }
  spit(base.string() + ".bin", body(joined(documents), token_bytes));
  spit(base.string() + ".idx", megatron_index(code, token_bytes, lengths, firsts));
}

// NAME.ds and NAME.ds.index.
inline void write_datatrove(const std::filesystem::path& base, const Documents& documents,
                            int token_bytes = 2) {
  std::filesystem::create_directories(base.parent_path());
  std::vector<std::int64_t> ends;
  std::int64_t end = 0;
  for (const auto& document : documents)
    ends.push_back(end += std::ssize(document));
  spit(base.string() + ".ds", body(joined(documents), token_bytes));
  spit(base.string() + ".ds.index", u64s(ends));
}

inline void write_manifest(const std::filesystem::path& directory, const Manifest& manifest) {
  spit(directory / kManifestName, manifest.dump());
}

// Writes `tokens`, documents of bytes, as a dataset in shards of `shard_tokens`. A document ends
// where the next begins, and at the end of all.
inline Manifest write_dataset(const std::filesystem::path& directory, const Tokens& tokens,
                              std::int64_t shard_tokens, Boundary boundary = Boundary::front,
                              const Mask& mask = {}) {
  std::filesystem::create_directories(directory);
  const auto total = static_cast<std::int64_t>(tokens.size());
  Manifest manifest;
  manifest.format = {"bytes", 1024, 2, 257, boundary, boundary == Boundary::listed ? -1 : 256};
  manifest.tokenizer_hash = ByteTokenizer().about().hash;
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
    if (!mask.empty()) {
      const auto bits = mask_bits({mask.begin() + first, mask.begin() + first + shard.tokens});
      spit(directory / mask_name(shard.file), bits);
      shard.mask_hash = hash_hex(bits);
    }
    manifest.shards.push_back(shard);
  }
  write_manifest(directory, manifest);
  return manifest;
}

inline Tokens all_tokens(const Dataset& dataset) {
  Tokens tokens(static_cast<std::size_t>(dataset.tokens()));
  dataset.read(tokens, 0);
  return tokens;
}

inline Mask whole_mask(const Dataset& dataset) {
  Mask mask(static_cast<std::size_t>(dataset.tokens()), 7);
  dataset.read_mask(mask, 0);
  return mask;
}

// Each document as it is visited. Together they are all tokens.
inline Documents documents_of(const Dataset& dataset) {
  Documents documents;
  std::int64_t last = 0;
  dataset.for_each_document([&](std::int64_t first, std::int64_t end) {
    EXPECT_EQ(first, last);
    EXPECT_LT(first, end);
    last = end;
    documents.emplace_back(static_cast<std::size_t>(end - first));
    dataset.read(documents.back(), first);
  });
  EXPECT_EQ(last, dataset.tokens());
  return documents;
}

}  // namespace lockstep::testing

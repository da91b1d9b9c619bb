// ShardOutput writes documents of tokens as shards of one format.
//
//   format     files                                          a document lies
//   lockstep   NAME_000000.bin, .ends, .mask; dataset.json    across shards
//   llmc       NAME_000000.bin                                across shards
//   nanogpt    NAME.bin                                       in the one file
//   megatron   NAME_000000.bin, .idx                          in one shard
//   datatrove  NAME_000000.ds, .ds.index, .metadata, .loss    in one shard
//
// docs/formats.md describes the bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/manifest.h"

namespace lockstep {

enum class OutputKind : std::uint8_t { lockstep, llmc, nanogpt, megatron, datatrove };

class ShardOutput {
 public:
  struct Config {
    OutputKind kind = OutputKind::lockstep;
    std::filesystem::path directory;
    std::string name;               // prefix of shard names
    std::int64_t shard_tokens = 0;  // a shard is full with this many
    TokenFormat format;          // token_bytes 2 or 4; for lockstep all members, for the manifest
    std::string tokenizer_hash;  // for lockstep
    bool masks = false;          // for lockstep and datatrove
  };

  explicit ShardOutput(Config config);
  ShardOutput(const ShardOutput&) = delete;
  ShardOutput& operator=(const ShardOutput&) = delete;
  ~ShardOutput();

  // Appends tokens to the current document. With config.masks, `mask` has 0 or 1 per token. The ids
  // must fit the format.
  void add(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> mask);
  void end_document();
  void finish();  // completes and syncs all files

  std::int64_t shards() const { return shards_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }

 private:
  struct Open;
  void start_shard();
  void finish_shard();
  void write_megatron_index();

  Config config_;
  std::unique_ptr<Open> open_;
  Manifest manifest_;  // for lockstep
  std::int64_t shards_ = 0, tokens_ = 0, documents_ = 0;
};

}  // namespace lockstep

// ShardWriter: writes u16 tokens and the ends of documents as shards of a dataset in a directory,
// and its dataset.json last. What is written is synced to the disk by a thread of its own, while
// the next shard is already being filled.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string>

#include "data/manifest.h"

namespace lockstep {

class ShardWriter {
 public:
  // Shards are called NAME_000000.bin and on, each of `shard_tokens` but the last.
  ShardWriter(std::filesystem::path directory, std::string name, std::int64_t shard_tokens);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  ~ShardWriter();

  // Appends `tokens`. `ends`: of documents, counted in all tokens so far, of which each lies behind
  // one of `tokens`.
  void add(std::span<const std::uint16_t> tokens, std::span<const std::int64_t> ends);

  // Ends the last shard and writes dataset.json, of tokens as `format` says.
  Manifest finish(const TokenFormat& format, const std::string& tokenizer_hash);

 private:
  struct Open;
  void start_shard();
  void finish_shard();
  void take_committed();

  std::filesystem::path directory_;
  std::string name_;
  std::int64_t shard_tokens_;
  std::int64_t written_ = 0;  // tokens of finished shards
  std::size_t started_ = 0;   // shards
  std::unique_ptr<Open> open_;
  std::future<Manifest::Shard> committing_;
  Manifest manifest_;
};

}  // namespace lockstep

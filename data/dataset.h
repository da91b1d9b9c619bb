// Dataset: the tokens of one shard or many, one behind the other, as one long sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace lockstep {

class Dataset {
 public:
  // Each path: a shard; a directory with a dataset.json; a directory of *.bin shards of one format;
  // or a pattern whose last part holds a '*' ("fineweb/*_train_*.bin"). Paths follow in the order
  // given, shards of one path in the order of their names; all must be of one format. Throws
  // DataError naming what is wrong.
  explicit Dataset(const std::vector<std::string>& paths);

  const TokenFormat& format() const { return format_; }
  std::int64_t tokens() const { return starts_.back(); }
  const std::vector<TokenFile>& shards() const { return shards_; }
  std::int64_t shard_start(std::size_t shard) const { return starts_[shard]; }

  // XXH3-128 in hexadecimal of dataset.json; without one, of the names and sizes of the shards.
  const std::string& fingerprint() const { return fingerprint_; }

  // Fills `out` with the tokens from `first`. Throws DataError naming file, byte and token where an
  // id is not below the format's vocabulary, or `vocabulary` (0: any).
  void read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary = 0) const;

 private:
  TokenFormat format_;
  std::vector<TokenFile> shards_;
  std::vector<std::int64_t> starts_;  // of each shard, in tokens; and the end of the last
  std::string fingerprint_;
};

}  // namespace lockstep

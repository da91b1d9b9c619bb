// Dataset: the tokens of one shard or many, one behind the other, as one long sequence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/document_ends.h"
#include "data/token_file.h"

namespace lockstep {

struct Shard {
  TokenFile file;
  std::optional<DocumentEnds> ends;  // where a dataset.json lists the shard
};

class Dataset {
 public:
  // Each path: a shard; a directory with a dataset.json; a directory of *.bin shards of one format;
  // or a pattern whose last part holds a '*' ("fineweb/*_train_*.bin"). Paths follow in the order
  // given, shards of one path in the order of their names; all must be of one format. Throws
  // DataError naming what is wrong.
  explicit Dataset(const std::vector<std::string>& paths);

  const TokenFormat& format() const { return shards_.front().file.format(); }
  std::int64_t tokens() const { return starts_.back(); }
  const std::vector<Shard>& shards() const { return shards_; }
  std::int64_t shard_start(std::size_t shard) const { return starts_[shard]; }  // in tokens
  std::size_t shard_of(std::int64_t token) const;

  // XXH3-128 in hexadecimal of dataset.json; without one, of the names and sizes of the shards.
  const std::string& fingerprint() const { return fingerprint_; }

  // Fills `out` with the tokens from `first`. Throws DataError naming file, byte and token where an
  // id is not below the format's vocabulary, or `vocabulary` (0: any).
  void read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary = 0) const;

  // For the window of `tokens` that starts at token `first` of the dataset: the index in the window
  // of the first token of each token's document, 0 where that lies before the window.
  void find_documents(std::span<std::int32_t> document_start, std::span<const std::int32_t> tokens,
                      std::int64_t first) const;

 private:
  // Append the shards of one path; return its fingerprint.
  std::string open(const std::filesystem::path& path);
  std::string open_listed(const std::filesystem::path& manifest,
                          const std::vector<std::string>& names);
  void mark_listed_documents(std::span<std::int32_t> document_start, std::int64_t first) const;

  std::vector<Shard> shards_;
  std::vector<std::int64_t> starts_{0};  // of each shard, in tokens; and the end of the last
  std::string fingerprint_;
};

}  // namespace lockstep

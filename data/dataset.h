// Dataset: the tokens of one shard or many, one behind the other, as one long sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "data/shard_list.h"

namespace lockstep {

class Dataset {
 public:
  // The shards of each path (see list_shards), one path behind the other, all of one format. Throws
  // DataError naming what is wrong.
  explicit Dataset(const std::vector<std::string>& paths);

  const TokenFormat& format() const { return shards_.front().file.format(); }
  std::int64_t tokens() const { return starts_.back(); }

  // Of the tokenizer that dataset.json names; 0 without one: other formats only say what is usual.
  std::int64_t tokenizer_vocabulary() const { return described_ ? format().vocabulary : 0; }

  // Of what defines the tokenizer, as dataset.json says; empty without one.
  const std::string& tokenizer_hash() const { return tokenizer_hash_; }

  const std::vector<Shard>& shards() const { return shards_; }
  std::int64_t shard_start(std::size_t shard) const { return starts_[shard]; }  // in tokens
  std::size_t shard_of(std::int64_t token) const;

  // Of the one path's list; of several paths, of their fingerprints.
  const std::string& fingerprint() const { return fingerprint_; }

  // Fills `out` with the tokens from `first`. Throws DataError naming file, byte and token where an
  // id is not below the format's vocabulary, or `vocabulary` (0: any).
  void read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary = 0) const;

  // For the window of `tokens` that starts at token `first` of the dataset: the index in the window
  // of the first token of each token's document, 0 where that lies before the window.
  void find_documents(std::span<std::int32_t> document_start, std::span<const std::int32_t> tokens,
                      std::int64_t first) const;

  // Calls visit for each document, in tokens of the dataset, in order; all tokens are of one. A
  // document that crosses shards is one. Where none lists their ends, all tokens are read.
  void for_each_document(FunctionRef<void(std::int64_t first, std::int64_t end)> visit) const;

  // Loss masks: whether a token counts in the loss where it is the target. Without, all do.
  bool has_masks() const { return !masks_.empty(); }
  void read_mask(std::span<std::uint8_t> out, std::int64_t first) const;

 private:
  void mark_listed_documents(std::span<std::int32_t> document_start, std::int64_t first) const;

  std::vector<Shard> shards_;
  std::vector<std::int64_t> starts_{0};  // of each shard, in tokens; and the end of the last
  std::vector<ReadFile> masks_;          // of each shard, or none
  std::string fingerprint_, tokenizer_hash_;
  bool described_ = false;  // by dataset.json
};

}  // namespace lockstep

// Dataset: the tokens of one shard or many, one behind the other, as one long sequence. Shards are
// opened when they are read, so many at once. Threads may share a dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/function_ref.h"
#include "data/open_shards.h"
#include "data/shard_list.h"

namespace lockstep {

class Dataset {
 public:
  // More are seldom of use: the shards that windows of a step lie in, of which each costs some
  // microseconds to open.
  static constexpr std::size_t kMostOpen = 256;

  // The shards of each path (see list_shards), one path behind the other, see check_same_format.
  // Throws DataError naming what is wrong. `files`, which must outlive it, opens them; null: as
  // usual. `most_open`: so many shards are open at once, or as many as the system's limit leaves.
  explicit Dataset(const std::vector<std::string>& paths, ShardFiles* files = nullptr,
                   std::size_t most_open = kMostOpen);
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  ~Dataset() = default;

  // Of the first path, but for how wide tokens are at most, and for the vocabulary, below which all
  // ids are; 0: not all paths' formats say it.
  const TokenFormat& format() const { return format_; }
  std::int64_t tokens() const { return starts_.back(); }

  // As dataset.json says; 0 without one: other formats only say what is usual.
  std::int64_t tokenizer_vocabulary() const { return tokenizer_vocabulary_; }

  // Of what defines the tokenizer; "": it is not known.
  const std::string& tokenizer_hash() const { return tokenizer_hash_; }

  const std::vector<ShardList>& lists() const { return lists_; }  // one a path
  std::size_t shards() const { return starts_.size() - 1; }
  std::int64_t shard_start(std::size_t shard) const { return starts_[shard]; }  // in tokens
  std::size_t shard_of(std::int64_t token) const;
  std::string shard_path(std::size_t shard) const;
  std::size_t open_shards() const { return open_->count(); }

  // Of a dataset at distant addresses: what of it the cache should hold now.
  bool is_distant() const { return is_distant_; }
  std::vector<std::string> files_of(std::size_t shard) const;
  // Closes other shards, which may go from the cache then; reading opens them again.
  void keep_open(const std::vector<std::size_t>& shards) const { open_->keep(shards); }

  // Of the one path's list; of several paths, of their fingerprints.
  const std::string& fingerprint() const { return fingerprint_; }

  // Fills `out` with the tokens from `first`. Throws DataError naming file, byte and token where an
  // id is not below the format's vocabulary, or `vocabulary` (0: any).
  void read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary = 0) const;

  // Some tokens may not count in the loss when they are predicted. out[i]: 1 where token first + i
  // counts, which all do without masks, else 0.
  bool has_masks() const { return has_masks_; }
  void read_mask(std::span<std::uint8_t> out, std::int64_t first) const;

  // For the window of `tokens` that starts at token `first` of the dataset: the index in the window
  // of the first token of each token's document, 0 where that lies before the window. A list of
  // documents beside a shard alone says where they end, whatever tokens are in them.
  void find_documents(std::span<std::int32_t> document_start, std::span<const std::int32_t> tokens,
                      std::int64_t first) const;

  // Calls visit(first, end) for each document in order: the tokens [first, end), with the one in
  // front or behind that tells documents apart. Where they are not listed all tokens are read.
  void for_each_document(FunctionRef<void(std::int64_t first, std::int64_t end)> visit) const;

 private:
  struct Place {
    std::size_t list, shard;  // within it
  };
  Place place_of(std::size_t shard) const;
  void add(ShardList list);
  Shard open(std::size_t shard);
  void for_each_part(std::int64_t first, std::int64_t count,
                     FunctionRef<void(std::size_t shard, std::int64_t in_shard, std::int64_t at,
                                      std::int64_t count)>
                         visit) const;
  bool lists_documents(std::size_t shard) const;
  void visit_ends(std::size_t shard, std::int64_t first, std::int64_t last,
                  FunctionRef<void(std::int64_t end)> visit) const;
  void for_each_end(FunctionRef<void(std::int64_t end)> visit) const;
  void list_ends(std::size_t shard, FunctionRef<void(std::int64_t end)> visit) const;
  void scan_for_ends(std::size_t shard, FunctionRef<void(std::int64_t end)> visit) const;

  LocalFiles local_files_;
  ShardFiles* files_;
  std::vector<ShardList> lists_;
  std::vector<std::size_t> list_ends_;   // shards up to the end of each list
  std::vector<std::int64_t> starts_{0};  // of each shard, in tokens; and the end of the last
  TokenFormat format_;
  std::int64_t tokenizer_vocabulary_ = 0;
  std::string fingerprint_, tokenizer_hash_;
  bool has_masks_ = false, is_distant_ = false;
  std::optional<OpenFilesRoom> room_;  // for those that are open
  std::unique_ptr<OpenShards> open_;
};

// Why the tokens of both are of two tokenizers, in words; "": they may be of one. The hashes tell
// where both are known, else the tokens that tell documents apart, where both have one.
std::string difference_of_tokenizers(const Dataset& a, const Dataset& b);

}  // namespace lockstep

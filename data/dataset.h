// Dataset presents the tokens of one or more shards, in order, as one long sequence. It opens a
// shard when it is read and keeps a limited number open. Threads may share a dataset.
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
  // The default limit of open shards. More rarely help: the windows of a step lie in few shards,
  // and opening a shard costs some microseconds.
  static constexpr std::size_t kMostOpen = 256;

  // Lists the shards of each path (see list_shards) in the order of the paths, see
  // check_same_format. Throws DataError naming the problem. `files` opens shards and must outlive
  // the dataset; null opens local files. At most `most_open` shards are open at once, fewer if the
  // system limit is lower.
  explicit Dataset(const std::vector<std::string>& paths, ShardFiles* files = nullptr,
                   std::size_t most_open = kMostOpen);
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  ~Dataset() = default;

  // The format of the first path, with the largest token width of all paths. All ids are below
  // `vocabulary`; it is 0 unless the formats of all paths define it.
  const TokenFormat& format() const { return format_; }
  std::int64_t tokens() const { return starts_.back(); }

  // The vocabulary in dataset.json; 0 without one, because other formats only imply a usual value.
  std::int64_t tokenizer_vocabulary() const { return tokenizer_vocabulary_; }

  // Hash of the tokenizer's definition; "" if unknown.
  const std::string& tokenizer_hash() const { return tokenizer_hash_; }

  const std::vector<ShardList>& lists() const { return lists_; }  // one per path
  std::size_t shards() const { return starts_.size() - 1; }
  std::int64_t shard_start(std::size_t shard) const { return starts_[shard]; }  // in tokens
  std::size_t shard_of(std::int64_t token) const;
  std::string shard_path(std::size_t shard) const;
  std::size_t open_shards() const { return open_->count(); }

  // True if a path is remote. Then the cache should hold the files below.
  bool is_distant() const { return is_distant_; }
  std::vector<std::string> files_of(std::size_t shard) const;
  // Closes all other shards, so that the cache may evict them. Reading opens them again.
  void keep_open(const std::vector<std::size_t>& shards) const { open_->keep(shards); }

  // Fingerprint of the only list, or of the fingerprints of all lists.
  const std::string& fingerprint() const { return fingerprint_; }

  // Fills `out` with the tokens from `first`. Throws DataError naming file, byte and token if an id
  // is not below the vocabulary of the format, or not below `vocabulary` (0: any).
  void read(std::span<std::int32_t> out, std::int64_t first, std::int64_t vocabulary = 0) const;

  // With masks, some tokens do not count in the loss when they are predicted. out[i] is 1 if token
  // first + i counts, else 0. Without masks all tokens count.
  bool has_masks() const { return has_masks_; }
  void read_mask(std::span<std::uint8_t> out, std::int64_t first) const;

  // For the window of `tokens` that starts at token `first` of the dataset: sets document_start[i]
  // to the index in the window of the first token of token i's document, or 0 if the document
  // starts before the window. If a shard has a list of documents, only the list defines where they
  // end, whatever the tokens are.
  void find_documents(std::span<std::int32_t> document_start, std::span<const std::int32_t> tokens,
                      std::int64_t first) const;

  // Calls visit(first, end) for each document in order. The tokens [first, end) include the
  // separator token before or after the document. Without lists of documents it reads all tokens.
  void for_each_document(FunctionRef<void(std::int64_t first, std::int64_t end)> visit) const;

 private:
  struct Place {
    std::size_t list, shard;  // index within the list
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
  std::vector<std::size_t> list_ends_;   // number of shards up to the end of each list
  std::vector<std::int64_t> starts_{0};  // first token of each shard, then the end of the last
  TokenFormat format_;
  std::int64_t tokenizer_vocabulary_ = 0;
  std::string fingerprint_, tokenizer_hash_;
  bool has_masks_ = false, is_distant_ = false;
  std::optional<OpenFilesRoom> room_;  // file descriptors reserved for open shards
  std::unique_ptr<OpenShards> open_;
};

// Why the two datasets have different tokenizers, in words; "" if they may have the same. Compares
// the hashes if both are known, else the separator tokens if both have one.
std::string difference_of_tokenizers(const Dataset& a, const Dataset& b);

}  // namespace lockstep

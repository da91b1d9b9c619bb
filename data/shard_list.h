// list_shards finds the shards of a path, their format, and the number of tokens of each. It trusts
// a dataset.json until a shard is opened, and opens other shards once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/document_ends.h"
#include "data/loss_mask.h"
#include "data/shard_files.h"
#include "data/token_file.h"

namespace lockstep {

// A shard is a file of tokens and the files beside it.
enum class ShardKind : std::uint8_t {
  plain,      // *.bin with a header that identifies it, or none: llm.c, nanoGPT, LLMQ
  lockstep,   // NAME.bin, NAME.ends, optional NAME.mask; dataset.json lists them
  megatron,   // NAME.bin, NAME.idx
  datatrove,  // NAME.ds, NAME.ds.index, optional NAME.ds.metadata, NAME.ds.loss
};

// FileIdentity distinguishes a file from another file that replaced it.
struct FileIdentity {
  std::uint64_t inode = 0;
  std::int64_t modified = 0;  // in ns

  // Returns the identity of the file at a path; zeros for a remote or missing file.
  static FileIdentity of(const std::filesystem::path& path);
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct ListedShard {
  std::string name;  // name of the file of tokens
  std::int64_t tokens = 0;
  std::int64_t documents = 0;  // documents that end in it, if dataset.json defines it
  FileIdentity identity;       // of the file that was inspected; zeros: not inspected yet
};

// ShardList has the shards of one directory and one format.
struct ShardList {
  std::filesystem::path directory;
  ShardKind kind = ShardKind::plain;
  TokenFormat format;
  std::string tokenizer_hash;  // "" if unknown
  bool has_masks = false;
  std::vector<ListedShard> shards;
  // XXH3-128 in hexadecimal of dataset.json. Without one, it is of the names and sizes of the
  // shards and of samples of their bytes.
  std::string fingerprint;

  std::filesystem::path path(const ListedShard& shard) const { return directory / shard.name; }
};

// `path` is one of:
// - a shard, by any of its files, or for Megatron by their common prefix
// - a directory with a dataset.json
// - a directory of shards of one kind
// - a pattern whose last part contains a '*' ("fineweb/*_train_*.bin")
// Shards are sorted by name. A remote path ("s3://bucket/d") needs a dataset.json. Throws DataError
// naming the problem. It is also an error if files that dataset.json lists are missing, or if
// dataset.json itself is missing beside shards that need it. With `damages`, shards that contradict
// their format are left out and the reason is added there. Missing files are then found when they
// are opened.
ShardList list_shards(const std::filesystem::path& path, ShardFiles& files,
                      std::vector<std::string>* damages = nullptr);

// Throws DataError unless both lists may form one dataset. They must separate documents in the same
// way and have the same tokenizer, as far as it is known.
void check_same_format(const ShardList& a, const ShardList& b);

// Returns the files of a shard that dataset.json lists: tokens, ends and, if present, the mask.
std::vector<std::string> files_of(const ShardList& list, const ListedShard& shard);

// An open shard.
struct Shard {
  TokenFile file;
  std::unique_ptr<DocumentEnds> ends;  // null unless the format lists them
  std::optional<LossMask> mask;
};

// Throws DataError if the shard contradicts the list.
Shard open_shard(const ShardList& list, const ListedShard& shard, ShardFiles& files);

// Opens only the document ends of a shard that dataset.json lists.
EndsList open_ends(const ShardList& list, const ListedShard& shard, ShardFiles& files);

}  // namespace lockstep

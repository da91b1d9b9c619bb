// list_shards: which shards a path means, of which format, and how many tokens each has. What a
// dataset.json says is believed until a shard is opened; others are looked at once.
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

// A shard is a file of tokens and what lies beside it.
enum class ShardKind : std::uint8_t {
  plain,      // *.bin that says by its header what it is, or has none: llm.c, nanoGPT, LLMQ
  lockstep,   // NAME.bin, NAME.ends and perhaps NAME.mask, which dataset.json lists
  megatron,   // NAME.bin, NAME.idx
  datatrove,  // NAME.ds, NAME.ds.index and perhaps NAME.ds.metadata, NAME.ds.loss
};

// What tells a file from another one that took its place.
struct FileIdentity {
  std::uint64_t inode = 0;
  std::int64_t modified = 0;  // in ns

  // Of what lies at a path; none (zeros) of what lies elsewhere, or is not there.
  static FileIdentity of(const std::filesystem::path& path);
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct ListedShard {
  std::string name;  // of the file of tokens
  std::int64_t tokens = 0;
  std::int64_t documents = 0;  // that end in it, where dataset.json says so
  FileIdentity identity;       // of the file that was looked at; none: it was not yet
};

// Of one directory and one format.
struct ShardList {
  std::filesystem::path directory;
  ShardKind kind = ShardKind::plain;
  TokenFormat format;
  std::string tokenizer_hash;  // "": it is not known
  bool has_masks = false;
  std::vector<ListedShard> shards;
  // XXH3-128 in hexadecimal of dataset.json; without one, of the names and sizes of the shards and
  // of samples of their bytes.
  std::string fingerprint;

  std::filesystem::path path(const ListedShard& shard) const { return directory / shard.name; }
};

// `path`: a shard, by any of its files or, of Megatron's, by their common beginning; a directory
// with a dataset.json; a directory of shards of one kind; or a pattern whose last part holds a '*'
// ("fineweb/*_train_*.bin"). Shards follow in the order of their names. Elsewhere than on this
// machine ("s3://bucket/d") a dataset.json must be there. Throws DataError naming what is wrong, as
// where files that dataset.json lists are missing, or dataset.json itself is beside shards that
// need it; with `damages` shards that are not what their format says are left out, and why is added
// there, and missing files are seen when they are opened.
ShardList list_shards(const std::filesystem::path& path, ShardFiles& files,
                      std::vector<std::string>* damages = nullptr);

// Whether both may be of one dataset: documents are told apart alike, and the tokenizer is the same
// as far as it is known. Throws DataError where not.
void check_same_format(const ShardList& a, const ShardList& b);

// The files of a shard that dataset.json lists: of tokens, ends and perhaps a mask.
std::vector<std::string> files_of(const ShardList& list, const ListedShard& shard);

// Open.
struct Shard {
  TokenFile file;
  std::unique_ptr<DocumentEnds> ends;  // where they are listed
  std::optional<LossMask> mask;
};

// Throws DataError where the shard is not what the list says.
Shard open_shard(const ShardList& list, const ListedShard& shard, ShardFiles& files);

// Of a shard that dataset.json lists, the ends of its documents alone.
EndsList open_ends(const ShardList& list, const ListedShard& shard, ShardFiles& files);

}  // namespace lockstep

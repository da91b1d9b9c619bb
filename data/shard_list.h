// list_shards: which shards a path means, and what is known of each before it is opened.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/document_ends.h"
#include "data/manifest.h"
#include "data/token_file.h"

namespace lockstep {

struct ListedShard {
  std::filesystem::path path;
  std::optional<Manifest::Shard> about;  // where a dataset.json lists it
  TokenFormat format;                    // only with `about`
};

struct ShardList {
  std::vector<ListedShard> shards;
  // XXH3-128 in hexadecimal of dataset.json; without one, of the names and sizes of the shards.
  std::string fingerprint;
  std::string tokenizer_hash;  // that dataset.json says; empty without one
};

// `path`: a shard; a directory with a dataset.json; a directory of *.bin shards; or a pattern whose
// last part holds a '*' ("fineweb/*_train_*.bin"). Shards follow in the order of their names.
// Throws DataError naming what is wrong.
ShardList list_shards(const std::filesystem::path& path);

struct Shard {
  TokenFile file;
  std::optional<DocumentEnds> ends;  // where a dataset.json lists the shard
};

// Throws DataError where the shard is not what the list says.
Shard open_shard(const ListedShard& shard);

}  // namespace lockstep

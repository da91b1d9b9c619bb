// select_shards finds the files of tokens of a path by their names alone.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// The selection of a path, which is a shard, a directory of shards, or a pattern; see list_shards.
struct ShardSelection {
  std::filesystem::path directory;
  bool described = false;          // true: `directory` has a dataset.json that lists the shards
  std::vector<std::string> names;  // of files of tokens, sorted; empty: all that dataset.json lists
  // All names in `directory`, sorted. Only read for a directory and for a pattern.
  std::vector<std::string> beside;
};

// Throws DataError if no shards are found, or shards that do not belong together.
ShardSelection select_shards(const std::filesystem::path& path);

// Returns "d/a.idx" for a Megatron shard "d/a.bin".
std::string index_name(const std::string& tokens);

}  // namespace lockstep

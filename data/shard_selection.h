// select_shards: which files of tokens a path means, by their names alone.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// A path is a shard, a directory of shards, or a pattern; see list_shards.
struct ShardSelection {
  std::filesystem::path directory;
  bool described = false;          // by the dataset.json in `directory`
  std::vector<std::string> names;  // of files of tokens, sorted; none: what dataset.json lists
  // All names in `directory`, sorted, where they were read: of a directory and of a pattern.
  std::vector<std::string> beside;
};

// Throws DataError where nothing is meant, or shards that do not belong together.
ShardSelection select_shards(const std::filesystem::path& path);

// "d/a.idx" of a Megatron shard "d/a.bin".
std::string index_name(const std::string& tokens);

}  // namespace lockstep

// verify reads every byte of a dataset and compares it with its headers, lists and hashes.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "data/shard_files.h"

namespace lockstep {

struct Verification {
  std::int64_t shards = 0, tokens = 0;
  bool hashed = false;               // false: no dataset.json with hashes
  std::vector<std::string> damages;  // each names a file; empty: no damage
  // The AccessError that ended the verification early and is no fault of the bytes; null: all
  // was verified.
  std::exception_ptr ended;
};

// Verifies the shards of `path` (see list_shards): size, header, range of tokens, XXH3-128,
// document ends, loss mask. Also verifies the tokenizer beside them if dataset.json names another
// one than `bytes`. Throws DataError if the expected content is unknown. `files` opens them; null:
// local files.
Verification verify(const std::filesystem::path& path, ShardFiles* files = nullptr);

}  // namespace lockstep

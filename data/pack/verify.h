// verify: reads every byte of a dataset and compares it with what its files say of themselves.
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
  bool hashed = false;               // false: no dataset.json says what the hashes should be
  std::vector<std::string> damages;  // each names a file; empty: whole
  // Why not all was looked at, an AccessError, which says nothing of the bytes; null: all was.
  std::exception_ptr ended;
};

// Of the shards that `path` means (see list_shards): size, header, range of tokens, XXH3-128, list
// of document ends, loss mask; and of the tokenizer that must lie beside them, where
// dataset.json names another than `bytes`. Throws DataError when it is not known what should be
// there. `files` opens them; null: as usual.
Verification verify(const std::filesystem::path& path, ShardFiles* files = nullptr);

}  // namespace lockstep

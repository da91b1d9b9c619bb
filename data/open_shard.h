// OpenShard has the files of one shard while it is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/hashed_file.h"
#include "data/manifest.h"

namespace lockstep {

struct ShardLayout {
  std::int64_t shard_tokens = 0;  // tokens of each shard except the last
  int token_bytes = 2;            // 2 or 4
  bool masked = false;
};

class OpenShard {
 public:
  // Opens NAME.bin and the files beside it, and keeps `kept_tokens` tokens and `kept_documents`
  // ends. The header is that of a full shard; only the last shard needs another one.
  OpenShard(const std::filesystem::path& directory, const std::string& name,
            const ShardLayout& layout, std::int64_t kept_tokens, std::int64_t kept_documents);

  void flush();       // passes buffered bytes to the system
  void sync() const;  // syncs flushed bytes to the disk; from any thread
  void commit();      // commits and closes the files
  void write_header(std::int64_t tokens);

  Manifest::Shard about;
  HashedFile tokens, ends;
  std::optional<HashedFile> mask;

 private:
  int token_bytes_;
};

}  // namespace lockstep

// OpenShard: the files of one shard while it is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/hashed_file.h"
#include "data/manifest.h"

namespace lockstep {

struct ShardLayout {
  std::int64_t shard_tokens = 0;  // of each shard but the last
  int token_bytes = 2;            // 2 or 4
  bool masked = false;
};

class OpenShard {
 public:
  // NAME.bin and what lies beside it, in which so many tokens and ends of documents are kept. Its
  // header is that of a full shard, which it will be, but for the last.
  OpenShard(const std::filesystem::path& directory, const std::string& name,
            const ShardLayout& layout, std::int64_t kept_tokens, std::int64_t kept_documents);

  void flush();       // to the system
  void sync() const;  // what was flushed, to the disk; by any thread
  void commit();      // and closes
  void write_header(std::int64_t tokens);

  Manifest::Shard about;
  HashedFile tokens, ends;
  std::optional<HashedFile> mask;

 private:
  int token_bytes_;
};

}  // namespace lockstep

// ShardFiles: opens the files of shards. What stands in for plain opening may bring them from
// elsewhere first.
#pragma once

#include <string>

#include "core/file.h"

namespace lockstep {

class ShardFiles {
 public:
  virtual ~ShardFiles() = default;
  // Of any thread. Throws DataError where the file cannot be had.
  virtual ReadFile open(const std::string& path) = 0;
};

class LocalFiles final : public ShardFiles {
 public:
  ReadFile open(const std::string& path) override { return ReadFile(path); }
};

}  // namespace lockstep

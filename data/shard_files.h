// ShardFiles: opens the files of shards. What stands in for plain opening may bring them from
// elsewhere first.
#pragma once

#include <string>
#include <vector>

#include "core/file.h"
#include "data/manifest.h"

namespace lockstep {

class ShardFiles {
 public:
  virtual ~ShardFiles() = default;
  // Of any thread. Throws DataError where the file cannot be had.
  virtual ReadFile open(const std::string& path) = 0;

  // The files that `reader` opens next, in order, in place of those that it named before: distant
  // ones are fetched meanwhile. Ranks of a machine read the same shards: what its first one says
  // counts, what others say does nothing.
  virtual void set_ahead(const void* /*reader*/, const std::vector<std::string>& /*paths*/) {}

  // What a dataset.json says, where it was read before; else null.
  virtual const Manifest* manifest(const std::string& /*path*/) { return nullptr; }
};

class LocalFiles final : public ShardFiles {
 public:
  ReadFile open(const std::string& path) override { return ReadFile(path); }
};

}  // namespace lockstep

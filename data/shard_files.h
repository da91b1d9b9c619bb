// ShardFiles: opens the files of shards. What stands in for plain opening may bring them from
// elsewhere first.
#pragma once

#include <exception>
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

  // No file is needed any more: who waits in open() gets an AccessError, from now on.
  virtual void stop() {}

  // What a dataset.json says, where it was read before; else null.
  virtual const Manifest* manifest(const std::string& /*path*/) { return nullptr; }
};

// Stops files (null: none) where an exception leaves its scope. It stands behind a loader, whose
// threads would keep that from ending for as long as a shard does not come.
class StopOnError {
 public:
  explicit StopOnError(ShardFiles* files) : files_(files) {}
  StopOnError(const StopOnError&) = delete;
  StopOnError& operator=(const StopOnError&) = delete;
  ~StopOnError() {
    if (files_ != nullptr && std::uncaught_exceptions() > exceptions_) files_->stop();
  }

 private:
  ShardFiles* files_;
  int exceptions_ = std::uncaught_exceptions();
};

class LocalFiles final : public ShardFiles {
 public:
  ReadFile open(const std::string& path) override { return ReadFile(path); }
};

}  // namespace lockstep

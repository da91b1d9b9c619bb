// ShardFiles opens the files of shards. Implementations may fetch them from elsewhere first.
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
  // Opens a file, from any thread. Throws DataError if the file is not available.
  virtual ReadFile open(const std::string& path) = 0;

  // Sets the files that `reader` opens next, in order, and replaces its previous list. Remote files
  // are fetched ahead. The ranks of a host read the same shards, so only the calls of its first
  // rank have an effect.
  virtual void set_ahead(const void* /*reader*/, const std::vector<std::string>& /*paths*/) {}

  // Stops reading: from now on, threads that wait in open() get an AccessError.
  virtual void stop() {}

  // Returns a dataset.json that was read before, else null.
  virtual const Manifest* manifest(const std::string& /*path*/) { return nullptr; }
};

// Stops `files` (may be null) if an exception leaves its scope. Declare it after a loader:
// otherwise the destructor of the loader waits for its threads until a missing shard arrives.
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

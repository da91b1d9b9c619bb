// HostShards opens shards for all ranks of a host. It opens each local file once, and each remote
// file through the cache, with the hash in the dataset.json beside it. The first rank of the host
// has a HostShards; the others request files from it (data/remote/shard_server.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/remote/shard_cache.h"
#include "data/shard_files.h"

namespace lockstep {

class HostShards final : public ShardFiles {
 public:
  // Creates the cache directory and loads libcurl when the first remote shard is requested. Without
  // a configured directory it uses the default one.
  HostShards(const ShardCache::Config& cache, const Environment& environment,
             const Patience& patience = {});
  ~HostShards() override;

  // Opens `path`: a local file; a remote shard, its ends or its mask, beside a dataset.json; or
  // another remote file beside it, which is not cached. Throws DataError.
  ReadFile open(const std::string& path) override;
  Descriptor open_descriptor(const std::string& path);

  // Several readers take turns; local files are ignored. Errors are only logged as warnings,
  // because opening the file reports them again.
  void set_ahead(const void* reader, const std::vector<std::string>& paths) override;

  const Manifest* manifest(const std::string& path) override;

  // Returns the bytes that the `shards` largest shards of `paths` (see list_shards) need in a
  // cache, with the files beside them. Local shards need none. Reads only the dataset.json of each
  // dataset.
  std::int64_t room_of(const std::vector<std::string>& paths, std::int64_t shards);

  // Throws ConfigError with the numbers if the cache is too small for all `needs` at once. A need
  // is a number of shards of one source.
  struct Need {
    std::vector<std::string> paths;  // paths of one source
    std::int64_t shards = 0;
  };
  void need_room(const std::vector<Need>& needs);

  void stop() override;  // as ShardCache::stop does
  ShardCache::Counts counts() const;
  std::int64_t opened_local() const { return opened_local_; }

  // "$XDG_CACHE_HOME/lockstep/shards", else "~/.cache/lockstep/shards".
  static std::filesystem::path default_directory(const Environment& environment);

 private:
  class Directory;  // a remote directory
  struct Local {
    Descriptor file;
    std::int64_t used = 0;
  };
  Descriptor open_local(const std::string& path);
  Descriptor open_remote(const std::string& path);
  const Directory& directory_of(const std::string& path);
  std::vector<std::int64_t> rooms_of(const std::vector<std::string>& paths);
  ShardCache& cache();
  bool has_cache() const;

  ShardCache::Config cache_config_;
  Environment environment_;
  Remote remote_;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;  // protects the members below; not held while fetching or creating
  std::mutex fetching_;       // held while a directory is fetched
  std::mutex making_;         // held while the cache is created, which may wait for a disk
  std::map<std::string, std::unique_ptr<Directory>> directories_;
  std::unique_ptr<ShardCache> cache_;
  std::mutex opening_;  // held while a local file is opened; a slow one blocks no other users
  std::map<std::string, Local> local_;
  std::int64_t uses_ = 0;
  std::mutex ahead_mutex_;
  std::map<const void*, std::vector<CachedShard>> ahead_;  // by reader
  std::atomic<std::int64_t> opened_local_{0};
};

}  // namespace lockstep

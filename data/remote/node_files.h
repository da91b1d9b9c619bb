// NodeFiles: opens shards for all ranks of a machine: each local file once, each distant one
// through the cache, which knows from the dataset.json beside it what is in it. The machine's first
// rank has one, and the others ask it (data/remote/shard_server.h).
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

class NodeFiles final : public ShardFiles {
 public:
  // The cache's directory, the default one where none is named, is made, and libcurl looked for,
  // when the first distant shard is asked for.
  NodeFiles(const ShardCache::Config& cache, const Environment& environment,
            const Patience& patience = {});
  ~NodeFiles() override;

  // `path`: a local file; a shard, its ends or its mask at a distant address, whose directory holds
  // a dataset.json; or another file there, which is not kept. Throws DataError.
  ReadFile open(const std::string& path) override;
  Descriptor open_descriptor(const std::string& path);

  // Readers by turns, where there are several; local files are left out. What is wrong is a warning
  // of the log: opening says it again.
  void set_ahead(const void* reader, const std::vector<std::string>& paths) override;

  const Manifest* manifest(const std::string& path) override;

  // The bytes in a cache of the `shards` largest shards of those that paths mean (see list_shards),
  // with all that lies beside them. Local ones have none. Reads the datasets' dataset.json alone.
  std::int64_t room_of(const std::vector<std::string>& paths, std::int64_t shards);

  // Throws ConfigError, with the numbers, where the cache cannot hold what should be in it at once:
  // of each source so many of its shards.
  struct Need {
    std::vector<std::string> paths;  // of one source
    std::int64_t shards = 0;
  };
  void need_room(const std::vector<Need>& needs);

  void stop() override;  // as ShardCache::stop
  ShardCache::Counts counts() const;
  std::int64_t opened_local() const { return opened_local_; }

  // "$XDG_CACHE_HOME/lockstep/shards", else "~/.cache/lockstep/shards".
  static std::filesystem::path default_directory(const Environment& environment);

 private:
  class Directory;  // a distant one
  struct Local {
    Descriptor file;
    std::int64_t used = 0;
  };
  Descriptor open_local(const std::string& path);
  Descriptor open_distant(const std::string& path);
  const Directory& directory_of(const std::string& path);
  std::vector<std::int64_t> rooms_of(const std::vector<std::string>& paths);
  ShardCache& cache();
  bool has_cache() const;

  ShardCache::Config cache_config_;
  Environment environment_;
  Remote remote_;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;  // of what follows, but not while something is fetched or made
  std::mutex fetching_;       // of directories
  std::mutex making_;         // of the cache, which may wait for a disk
  std::map<std::string, std::unique_ptr<Directory>> directories_;
  std::unique_ptr<ShardCache> cache_;
  std::mutex opening_;  // of local files: one that does not open is in nobody else's way
  std::map<std::string, Local> local_;
  std::int64_t uses_ = 0;
  std::mutex ahead_mutex_;
  std::map<const void*, std::vector<CachedShard>> ahead_;  // of each reader
  std::atomic<std::int64_t> opened_local_{0};
};

}  // namespace lockstep

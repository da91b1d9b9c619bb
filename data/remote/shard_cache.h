// ShardCache fetches shards of remote datasets to the local disk (data/remote/cache_directory.h),
// over several connections at once. Shards that a thread waits for come first, then those ahead in
// their order. Each shard is verified by its XXH3-128 before it can be opened.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/descriptor.h"
#include "core/hash.h"
#include "data/remote/cache_directory.h"
#include "data/remote/remote.h"

namespace lockstep {

struct CachedShard {
  std::string url, hash;  // hash: XXH3-128 in dataset.json
  std::int64_t bytes = 0;
};

class ShardCache {
 public:
  struct Config {
    std::filesystem::path directory;
    std::int64_t most_bytes = 0;  // 0: half of the free space
    int connections = 8;
    double room_seconds = 20;  // wait for room while all cached shards are in use
  };
  struct Counts {
    std::int64_t hits = 0, misses = 0;  // files that were present when opened, and others
    std::int64_t fetched = 0;           // number of files
    std::int64_t fetched_bytes = 0, evicted = 0;
    double fetching_seconds = 0;  // time with at least one active connection
    double waited_seconds = 0;    // time spent waiting for missing files
  };

  // `remote` must outlive the cache. Throws AccessError if the directory is not usable,
  // TransientError if threads cannot be started.
  ShardCache(const Config& config, Remote& remote);
  ShardCache(const ShardCache&) = delete;
  ShardCache& operator=(const ShardCache&) = delete;
  ~ShardCache();

  // Opens a shard, from any thread. Waits until it is present; it stays while the descriptor or a
  // copy of it is open. Throws DataError if it is not available or does not match its hash.
  Descriptor open(const CachedShard& shard);

  // Sets the shards that are opened next, in order. They are fetched as far as there is room, and
  // this cache does not remove them. Other users of the directory do not remove the first kMostHeld
  // of them. An error here is only logged; open() retries.
  void set_ahead(const std::vector<CachedShard>& ahead);

  // From now on, threads that wait in open() get an AccessError.
  void stop();

  static constexpr std::size_t kMostHeld = 256;  // most descriptors that the cache holds open

  Counts counts() const;
  const CacheDirectory& directory() const { return directory_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Job;
  struct Held {
    Descriptor file;
    std::int64_t used = 0;
  };

  void end();
  void work();
  bool step(Job& job, RemoteReader& reader, std::unique_lock<std::mutex>& lock);
  void begin(Job& job, std::unique_lock<std::mutex>& lock);
  void fetch(Job& job, RemoteReader& reader, std::unique_lock<std::mutex>& lock);
  void check(Job& job, std::unique_lock<std::mutex>& lock);
  void hash_front(Job& job, std::unique_lock<std::mutex>& lock);
  void finish(Job& job, std::unique_lock<std::mutex>& lock);
  void fail(Job& job, std::exception_ptr error);
  void hold(const std::string& hash, Descriptor file, bool is_wanted);
  Descriptor copy_of_held(const std::string& hash);
  void keep_whole(Job& job, Descriptor file);
  Job& job_of(const CachedShard& shard);
  bool is_ahead(const std::string& hash) const;
  bool may_go(const std::string& hash, std::size_t kept);
  void count_connection(int change);

  Config config_;
  Remote& remote_;
  CacheDirectory directory_;
  mutable std::mutex mutex_;
  std::condition_variable has_work_, has_changed_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;  // by hash
  std::map<std::string, Held> held_;                  // by hash; open, so that they are not removed
  std::unordered_set<std::string> there_;  // hashes in ahead_ that are complete in the directory
  std::vector<CachedShard> ahead_;
  std::unordered_map<std::string, std::size_t> places_;  // position of each hash in ahead_
  std::int64_t uses_ = 0;
  Counts counts_;
  int busy_ = 0;  // active connections
  Clock::time_point busy_since_;
  std::atomic<std::int64_t> fetched_bytes_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace lockstep

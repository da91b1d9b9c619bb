// OpenShards keeps shards of a dataset open. It opens a shard at its first use and closes the least
// recently used one when it needs room. Any thread may use it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "data/shard_list.h"

namespace lockstep {

class OpenShards {
 public:
  // Opens shard i by open(i). Any thread may call it, several at once for different i.
  OpenShards(std::size_t most, std::function<Shard(std::size_t i)> open)
      : most_(most), open_(std::move(open)) {}

  // A shard stays open while it is in use.
  class Use {
   public:
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { owner_.release(shard_); }
    const Shard* operator->() const { return open_; }

   private:
    friend class OpenShards;
    Use(OpenShards& owner, std::size_t shard, const Shard* open)
        : owner_(owner), shard_(shard), open_(open) {}
    OpenShards& owner_;
    std::size_t shard_;
    const Shard* open_;
  };

  // Throws the exceptions of open(); the next use retries.
  Use use(std::size_t shard);

  // Closes all shards except `shards` and those in use.
  void keep(const std::vector<std::size_t>& shards);

  std::size_t count() const;  // number of open shards

 private:
  struct Slot {
    std::unique_ptr<Shard> shard;  // null while it is opened
    std::int64_t users = 0, last_use = 0;
  };
  const Shard* acquire(std::size_t shard);
  void release(std::size_t shard);
  void make_room();

  std::size_t most_;
  std::function<Shard(std::size_t)> open_;
  mutable std::mutex mutex_;
  std::condition_variable opened_;
  std::unordered_map<std::size_t, Slot> slots_;
  std::int64_t uses_ = 0;
};

}  // namespace lockstep

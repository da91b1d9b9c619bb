#include "data/open_shards.h"

#include <algorithm>
#include <limits>

namespace lockstep {

OpenShards::Use OpenShards::use(std::size_t shard) {
  return {*this, shard, acquire(shard)};
}

const Shard* OpenShards::acquire(std::size_t shard) {
  std::unique_lock lock(mutex_);
  auto found = slots_.find(shard);
  // Another thread opens it: wait, and retry here if that failed.
  while (found != slots_.end() && !found->second.shard) {
    opened_.wait(lock);
    found = slots_.find(shard);
  }
  if (found == slots_.end()) {
    make_room();
    slots_.try_emplace(shard);
    lock.unlock();
    std::unique_ptr<Shard> opened;
    try {
      opened = std::make_unique<Shard>(open_(shard));
    } catch (...) {
      lock.lock();
      slots_.erase(shard);
      opened_.notify_all();
      throw;
    }
    lock.lock();
    found = slots_.find(shard);
    found->second.shard = std::move(opened);
    opened_.notify_all();
  }
  ++found->second.users;
  found->second.last_use = ++uses_;
  return found->second.shard.get();
}

void OpenShards::release(std::size_t shard) {
  const std::lock_guard lock(mutex_);
  --slots_.find(shard)->second.users;
}

// Shards in use stay open, even if they are more than `most`.
void OpenShards::make_room() {
  while (slots_.size() >= most_) {
    auto oldest = slots_.end();
    auto oldest_use = std::numeric_limits<std::int64_t>::max();
    for (auto at = slots_.begin(); at != slots_.end(); ++at) {
      if (!at->second.shard || at->second.users > 0 || at->second.last_use >= oldest_use) continue;
      oldest = at;
      oldest_use = at->second.last_use;
    }
    if (oldest == slots_.end()) return;
    slots_.erase(oldest);
  }
}

void OpenShards::keep(const std::vector<std::size_t>& shards) {
  const std::lock_guard lock(mutex_);
  std::erase_if(slots_, [&](const auto& entry) {
    const auto& [shard, slot] = entry;
    return slot.shard && slot.users == 0 &&
           std::find(shards.begin(), shards.end(), shard) == shards.end();
  });
}

std::size_t OpenShards::count() const {
  const std::lock_guard lock(mutex_);
  return slots_.size();
}

}  // namespace lockstep

// RunShards opens shards for the ranks of a run. The first rank of each host opens each shard
// once for all ranks there, and remote shards through the host's cache (docs/streaming.md). A rank
// that cannot reach the first rank opens shards itself, and logs a warning.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/remote/host_shards.h"
#include "data/remote/shard_server.h"
#include "dist/comms.h"
#include "train/config.h"

namespace lockstep {

class RunShards {
 public:
  // Collective: all ranks of the world call it together.
  RunShards(const Config::Data& data, World& world);
  RunShards(const RunShards&) = delete;
  RunShards& operator=(const RunShards&) = delete;
  ~RunShards() { stop(); }

  ShardFiles& files() { return own_ ? static_cast<ShardFiles&>(*own_) : *client_; }

  // Throws ConfigError, with the sizes, if this host's cache cannot hold the shards that loaders of
  // these configurations read at the same time. Call it before the loaders exist; it fetches none.
  void need_room(const std::vector<Loader::Config>& loaders);

  // Aborts waits for shards with an AccessError. Call it before the loaders are destroyed.
  void stop();

  // Counts of this host's cache; only on its first rank, and only if it opened a remote shard.
  std::optional<ShardCache::Counts> counts() const;

 private:
  std::unique_ptr<HostShards> own_;  // on the first rank, and on ranks that cannot reach it
  std::unique_ptr<ShardServer> server_;
  std::unique_ptr<ShardClient> client_;  // on the other ranks
};

// Describes the counts since `before` (docs/streaming.md); empty if no file was opened or fetched.
std::string in_words(const ShardCache::Counts& now, const ShardCache::Counts& before);

}  // namespace lockstep

// MachineFiles: how the ranks of a run open shards: the first rank of each machine opens them for
// all that are there, each once, and distant ones through the machine's cache (docs/streaming.md).
// A rank that cannot reach the first one opens them itself, and says so.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/remote/node_files.h"
#include "data/remote/shard_server.h"
#include "dist/comms.h"
#include "train/config.h"

namespace lockstep {

class MachineFiles {
 public:
  // Every rank of the world at once.
  MachineFiles(const Config::Data& data, World& world);
  MachineFiles(const MachineFiles&) = delete;
  MachineFiles& operator=(const MachineFiles&) = delete;
  ~MachineFiles() { stop(); }

  ShardFiles& files() { return own_ ? static_cast<ShardFiles&>(*own_) : *client_; }

  // Throws ConfigError, with the numbers, where the cache of this machine cannot hold what loaders
  // of these configurations read at a time. No shard is fetched for it: it comes before they are
  // made.
  void need_room(const std::vector<Loader::Config>& loaders);

  // No shard is needed any more: who waits for one gets an AccessError. Before loaders end.
  void stop();

  // Of this machine's cache, by its first rank, where something distant was opened.
  std::optional<ShardCache::Counts> counts() const;

 private:
  std::unique_ptr<NodeFiles> own_;  // of the first rank, and of those that cannot reach it
  std::unique_ptr<ShardServer> server_;
  std::unique_ptr<ShardClient> client_;  // of others
};

// Since `before`, as docs/streaming.md shows it; empty where no file was opened or fetched.
std::string in_words(const ShardCache::Counts& now, const ShardCache::Counts& before);

}  // namespace lockstep

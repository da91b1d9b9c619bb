#include "train/run/run_shards.h"

#include <algorithm>

#include "core/log.h"
#include "core/units.h"
#include "dist/topology_here.h"

namespace lockstep {

namespace {

// Returns null on failure; then the other ranks get no server name.
std::unique_ptr<ShardServer> serve(HostShards& files) {
  try {
    return std::make_unique<ShardServer>(files);
  } catch (const Error& error) {
    log_own_warning("this rank cannot open shards for the other ranks of its host: ", error.what());
    return nullptr;
  }
}

// Returns null if the server is unreachable, as between containers without a common network
// namespace.
std::unique_ptr<ShardClient> reach(const std::string& name) {
  try {
    return std::make_unique<ShardClient>(name);
  } catch (const AccessError& error) {
    log_own_warning(error.what(),
                    "; this rank opens shards and fetches remote ones itself. Ranks in containers "
                    "need a common network namespace (docs/streaming.md)");
    return nullptr;
  }
}

}  // namespace

RunShards::RunShards(const Config::Data& data, World& world) {
  const auto here = ranks_here(world);
  const auto open_own = [&] {
    own_ = std::make_unique<HostShards>(
        ShardCache::Config{.directory = data.cache_directory, .most_bytes = data.cache_bytes},
        process_environment());
  };
  const bool is_first = here.front() == world.rank();
  if (is_first) open_own();
  if (is_first && here.size() > 1) server_ = serve(*own_);
  const auto names = world.exchange(server_ ? server_->name() : "");
  // The rest is local: no other rank waits for it.
  if (!is_first) client_ = reach(names[static_cast<std::size_t>(here.front())]);
  if (!is_first && !client_) open_own();
}

void RunShards::need_room(const std::vector<Loader::Config>& loaders) {
  if (!own_) return;
  std::vector<HostShards::Need> needs;
  for (const auto& loader : loaders)
    for (const auto& source : loader.sources)
      needs.push_back({source.paths, Loader::shards_at_once(loader)});
  own_->need_room(needs);
}

void RunShards::stop() {
  if (client_) client_->stop();
  if (own_) own_->stop();
}

std::optional<ShardCache::Counts> RunShards::counts() const {
  if (!own_) return std::nullopt;
  const auto counts = own_->counts();
  return counts.hits + counts.misses > 0 ? std::optional(counts) : std::nullopt;
}

std::string in_words(const ShardCache::Counts& now, const ShardCache::Counts& before) {
  const auto hits = now.hits - before.hits, misses = now.misses - before.misses,
             fetched = now.fetched - before.fetched;
  if (hits + misses + fetched == 0) return {};
  const auto bytes = static_cast<double>(now.fetched_bytes - before.fetched_bytes);
  const auto seconds = now.fetching_seconds - before.fetching_seconds;
  return str(fetched, " files fetched",
             bytes > 0 ? str(", ", human_bytes(bytes), " at ", human_bytes(bytes / seconds), "/s")
                       : std::string(),
             ", ", hits, " opened from the cache, ", misses, " waited for (",
             human_seconds(now.waited_seconds - before.waited_seconds), "), ",
             now.evicted - before.evicted, " removed");
}

}  // namespace lockstep

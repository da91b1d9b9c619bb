#include "train/machine_files.h"

#include <algorithm>

#include "core/units.h"
#include "dist/topology_here.h"

namespace lockstep {

MachineFiles::MachineFiles(const Config::Data& data, World& world) {
  const auto here = ranks_here(world);
  const bool is_first = here.front() == world.rank();
  if (is_first)
    own_ = std::make_unique<NodeFiles>(
        ShardCache::Config{.directory = data.cache_directory, .most_bytes = data.cache_bytes},
        process_environment());
  if (is_first && here.size() > 1) server_ = std::make_unique<ShardServer>(*own_);
  const auto names = world.exchange(server_ ? server_->name() : "");
  if (!is_first)
    client_ = std::make_unique<ShardClient>(names[static_cast<std::size_t>(here.front())]);
}

void MachineFiles::need_room(const Loader& training, const Loader* validation) {
  if (!own_) return;
  std::vector<NodeFiles::Need> needs;
  for (const auto* loader : {&training, validation})
    for (std::size_t s = 0; loader != nullptr && s < loader->sources().count(); ++s)
      for (const auto& list : loader->sources().dataset(s).lists())
        needs.push_back(
            {list.directory.string(), std::min(loader->shards_at_once(), std::ssize(list.shards))});
  own_->need_room(needs);
}

void MachineFiles::stop() {
  if (client_) client_->stop();
  if (own_) own_->stop();
}

std::optional<ShardCache::Counts> MachineFiles::counts() const {
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

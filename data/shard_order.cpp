#include "data/shard_order.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/mix.h"
#include "data/order.h"

namespace lockstep {

ShardOrder::ShardOrder(std::vector<std::int64_t> windows, std::int64_t at_once)
    : windows_(std::move(windows)),
      at_once_(
          static_cast<std::size_t>(std::min(at_once, static_cast<std::int64_t>(windows_.size())))),
      count_(std::accumulate(windows_.begin(), windows_.end(), std::int64_t{0})) {
  LOCKSTEP_CHECK(at_once >= 1 && count_ >= 1, count_, " windows of ", windows_.size(), " shards, ",
                 at_once, " at once");
  LOCKSTEP_CHECK(windows_.size() <= std::numeric_limits<std::uint32_t>::max(), windows_.size(),
                 " shards");
  for (auto& epoch : epochs_) {  // so that nothing is allocated later
    epoch.shards.resize(windows_.size());
    epoch.starts.resize(windows_.size() + 1);
  }
}

const ShardOrder::Epoch& ShardOrder::table(std::uint64_t seed, std::int64_t epoch) const {
  Epoch& table = epochs_[static_cast<std::size_t>(epoch % 2)];
  if (table.epoch == epoch && table.seed == seed) return table;
  const Permutation permuted(epoch_key(seed, epoch), static_cast<std::int64_t>(windows_.size()));
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const auto shard = static_cast<std::size_t>(permuted(static_cast<std::int64_t>(i)));
    table.shards[i] = static_cast<std::uint32_t>(shard);
    table.starts[i + 1] = table.starts[i] + windows_[shard];
  }
  table.epoch = epoch;
  table.seed = seed;
  return table;
}

namespace {

// Index, among the permuted shards, of the shard with window i of the epoch.
std::size_t place_of(const std::vector<std::int64_t>& starts, std::int64_t i) {
  const auto above = std::upper_bound(starts.begin(), starts.end(), i);
  return static_cast<std::size_t>(above - starts.begin()) - 1;
}

}  // namespace

ShardOrder::Window ShardOrder::at(std::uint64_t seed, std::int64_t n) const {
  LOCKSTEP_CHECK(n >= 0, "sample ", n);
  const auto epoch = n / count_, i = n % count_;
  const std::lock_guard lock(mutex_);
  const auto& [of_seed, of_epoch, shards, starts] = table(seed, epoch);
  const auto group = place_of(starts, i) / at_once_;
  const auto first = starts[group * at_once_],
             end = starts[std::min((group + 1) * at_once_, windows_.size())];
  const auto key = mix64(mix64(epoch_key(seed, epoch)) + group * kGolden64);
  const auto shuffled = first + Permutation(key, end - first)(i - first);
  const auto place = place_of(starts, shuffled);
  return {shards[place], shuffled - starts[place]};
}

std::vector<std::size_t> ShardOrder::shards_ahead(std::uint64_t seed, std::int64_t n,
                                                  std::size_t most) const {
  LOCKSTEP_CHECK(n >= 0, "sample ", n);
  std::vector<std::size_t> ahead;
  std::vector<bool> listed(windows_.size());
  const std::lock_guard lock(mutex_);
  const auto epoch = n / count_;
  auto begin = place_of(table(seed, epoch).starts, n % count_) / at_once_ * at_once_;
  for (const auto e : {epoch, epoch + 1}) {
    const auto& shards = table(seed, e).shards;
    for (auto i = begin; i < shards.size() && ahead.size() < most; ++i) {
      if (windows_[shards[i]] == 0 || listed[shards[i]]) continue;
      listed[shards[i]] = true;
      ahead.push_back(shards[i]);
    }
    begin = 0;
  }
  return ahead;
}

}  // namespace lockstep

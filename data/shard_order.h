// ShardOrder: an order of windows that reads few shards at a time. Of each epoch the shards are
// permuted, and the windows of each `at_once` consecutive ones are shuffled together: around any
// sample at most twice as many shards are read, so that a stream of shards needs room for no more.
//
// A function of seed and sample alone: the windows of the permuted shards are summed up once an
// epoch, and a sample is found among the sums.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep {

class ShardOrder {
 public:
  // windows: of each shard, at least one in all
  ShardOrder(std::vector<std::int64_t> windows, std::int64_t at_once);

  std::int64_t count() const { return count_; }  // of windows: an epoch

  struct Window {
    std::size_t shard = 0;
    std::int64_t index = 0;  // within the shard
  };
  Window at(std::uint64_t seed, std::int64_t n) const;  // sample n >= 0

  // The shards that samples from n on read, each once, soonest first: those of n's own group, then
  // of the groups behind it; `most` of them, or all.
  std::vector<std::size_t> shards_ahead(std::uint64_t seed, std::int64_t n, std::size_t most) const;

 private:
  // The shards of an epoch as permuted, and the windows of all before each, and of all.
  struct Epoch {
    std::uint64_t seed = 0;
    std::int64_t epoch = -1;
    std::vector<std::uint32_t> shards;
    std::vector<std::int64_t> starts;
  };
  const Epoch& table(std::uint64_t seed, std::int64_t epoch) const;  // under the lock

  std::vector<std::int64_t> windows_;
  std::size_t at_once_;
  std::int64_t count_ = 0;
  mutable std::mutex mutex_;
  mutable std::array<Epoch, 2> epochs_;  // even and odd ones: an end is read ahead of the next
};

}  // namespace lockstep

// ShardOrder is an order of windows that reads few shards at a time. In each epoch it permutes the
// shards, and shuffles the windows of each `at_once` consecutive shards together. Around any sample
// at most 2 at_once shards are read, so a stream of shards needs room only for those.
//
// It is a function of seed and sample alone. The windows of the permuted shards are summed up once
// per epoch, and a sample is found by a search in the sums.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace lockstep {

class ShardOrder {
 public:
  // `windows`: number of windows of each shard; their sum is at least 1.
  ShardOrder(std::vector<std::int64_t> windows, std::int64_t at_once);

  std::int64_t count() const { return count_; }  // windows per epoch

  struct Window {
    std::size_t shard = 0;
    std::int64_t index = 0;  // index within the shard
  };
  Window at(std::uint64_t seed, std::int64_t n) const;  // sample n >= 0

  // Returns the shards that samples from n on read, each once, soonest first: the shards of n's own
  // group, then of the next groups. Returns `most` of them, or all.
  std::vector<std::size_t> shards_ahead(std::uint64_t seed, std::int64_t n, std::size_t most) const;

 private:
  // The permuted shards of an epoch. starts has the number of windows before each, then the total.
  struct Epoch {
    std::uint64_t seed = 0;
    std::int64_t epoch = -1;
    std::vector<std::uint32_t> shards;
    std::vector<std::int64_t> starts;
  };
  const Epoch& table(std::uint64_t seed, std::int64_t epoch) const;  // requires mutex_

  std::vector<std::int64_t> windows_;
  std::size_t at_once_;
  std::int64_t count_ = 0;
  mutable std::mutex mutex_;
  // Of an even and an odd epoch, because the end of one is read with the start of the next.
  mutable std::array<Epoch, 2> epochs_;
};

}  // namespace lockstep

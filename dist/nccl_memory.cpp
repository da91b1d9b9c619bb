#include "dist/nccl_memory.h"

#include <algorithm>

#include "core/integer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// NCCL allocates by cuMemCreate, in multiples of this.
constexpr std::int64_t kGranule = 2 * kMiB;
// Tables of a channel: its peers (608 bytes for each rank), pointers to them, and the ring.
constexpr std::int64_t kPeerBytes = 608;
// Further allocations of a group: its description, the windows, NVLS credits, copy engines.
constexpr std::int64_t kOtherGranules = 8;
// Buffers of a connection for the three protocols: 4 + 4.7 + 0.5 MiB. A peer inside the domain has
// them at the receiver, and a granule at the sender. A peer in another domain has them on both.
constexpr std::int64_t kBuffers = 10 * kMiB, kFromPeer = kBuffers, kToPeer = kGranule;
// Channels that NCCL makes for each NIC in a group that spans domains.
constexpr int kChannelsOfNic = 4;
constexpr int kMostChannels = 16;
// Messages to other domains share buffers of 16 chunks for each channel, in each direction.
constexpr std::int64_t kMessageBuffers = 2 * 16 * (kMiB / 8);
// All-reduces of a few bytes go by a tree. A rank has at most two neighbors in its own domain, and
// three in other domains.
constexpr std::int64_t kTreeInside = 2, kTreeAcross = 3;

int channels_of(Carries carries, int ranks, int domains) {
  const auto inside = static_cast<int>(divide_up(ranks, domains));
  return std::min(nccl_channels(carries), domains > 1 ? kChannelsOfNic * inside : kMostChannels);
}

std::int64_t tables(int channels, std::int64_t ranks) {
  return channels * (round_up(ranks * kPeerBytes, kGranule) + 2 * kGranule) +
         kOtherGranules * kGranule;
}

}  // namespace

int nccl_channels(Carries carries) {
  return carries == Carries::numbers ? 1 : kMostChannels;
}

int held_multiprocessors(const Comms& comms) {
  const bool adds = comms.reduce == Reduce::nccl;  // by kernels: copy engines cannot add
  int held = 0;
  for (const Levels* axis : {&comms.shard, &comms.replicate})
    if (axis->size() > 1 && (axis->domains > 1 || adds))
      held = std::max(held, channels_of(Carries::tensors, axis->size(), axis->domains));
  return held;
}

std::int64_t nccl_group_bytes(Group group, int ranks, int domains) {
  if (ranks == 1) return 0;
  const bool across = domains > 1;
  const auto inside = static_cast<int>(divide_up(ranks, domains));
  const bool has_one = group == Group::all || group == Group::other;
  const int channels = channels_of(has_one ? Carries::numbers : Carries::tensors, ranks, domains);
  const auto own = tables(channels, ranks);
  switch (group) {
    case Group::other: return own;  // makes no call
    case Group::all:
      return own + kTreeInside * (kFromPeer + kToPeer) + (across ? kTreeAcross * 2 * kBuffers : 0);
    case Group::shard_inside:
    case Group::replicate_inside: return own;
    case Group::shard_across:
    case Group::replicate_across: return own + channels * kMessageBuffers;
    case Group::tensor:
    case Group::gathers:
    case Group::shard:
    case Group::replicate: {  // a ring, whose last rank in a domain sends to another one
      const auto leaving = divide_up(channels, inside) * (kBuffers - kToPeer);
      return own + (across ? channels * (kFromPeer + kToPeer) + leaving : 0);
    }
  }
  return own;
}

std::int64_t nccl_memory_bytes(const Mesh& mesh, int domain_ranks, Reduce reduce) {
  const int world = mesh.world();
  if (world == 1) return 0;
  const auto domains_of = [&](int ranks, int neighbors) {  // ranks that are `neighbors` apart
    const int inside = std::clamp(domain_ranks / neighbors, 1, ranks);
    return static_cast<int>(divide_up(ranks, inside));
  };
  std::int64_t bytes = 0;
  const auto add = [&](Group group, int ranks, int domains) {
    bytes += nccl_group_bytes(group, ranks, domains);
  };
  const auto add_levels = [&](Group inside, Group across, int ranks, int domains) {
    add(inside, static_cast<int>(divide_up(ranks, domains)), 1);
    add(across, domains, domains);
  };
  const int tensor = mesh.tensor, shard = mesh.shard, replicate = mesh.replicate;
  const int shard_domains = domains_of(shard, tensor);
  const int replicate_domains = domains_of(replicate, tensor * shard);
  add(Group::other, world, domains_of(world, 1));
  add(Group::all, world, domains_of(world, 1));
  add(Group::tensor, tensor, domains_of(tensor, 1));
  add(Group::gathers, shard, shard_domains);
  add(Group::replicate, replicate, replicate_domains);
  if (reduce == Reduce::nccl) {
    add(Group::shard, shard, shard_domains);
  } else {
    add_levels(Group::shard_inside, Group::shard_across, shard, shard_domains);
    add_levels(Group::replicate_inside, Group::replicate_across, replicate, replicate_domains);
  }
  return bytes;
}

}  // namespace lockstep

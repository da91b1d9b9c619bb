#include "dist/nccl_memory.h"

#include <gtest/gtest.h>

namespace lockstep::nccl_memory_test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(NcclMemory, of_one_rank_is_zero) {
  EXPECT_EQ(nccl_memory_bytes({}, 8), 0);
  EXPECT_EQ(nccl_group_bytes(Group::gathers, 1, 1), 0);
}

// 2 MiB for each table of each channel, and eight more: 1 x 3 + 8 and 16 x 3 + 8 tables.
TEST(NcclMemory, of_a_group_in_one_domain_is_tables) {
  EXPECT_EQ(nccl_group_bytes(Group::other, 8, 1), 22 * kMiB);
  for (const auto group : {Group::tensor, Group::gathers, Group::shard_inside, Group::replicate,
                           Group::replicate_inside})
    EXPECT_EQ(nccl_group_bytes(group, 8, 1), 112 * kMiB);
}

// A tree connects two neighbors in the host by 12 MiB each, and three in other hosts by 20.
TEST(NcclMemory, of_small_sums_has_one_channel) {
  EXPECT_EQ(nccl_group_bytes(Group::all, 8, 1), (22 + 2 * 12) * kMiB);
  EXPECT_EQ(nccl_group_bytes(Group::all, 64, 8), (22 + 2 * 12 + 3 * 20) * kMiB);
}

// 16 channels receive by 10 MiB and send by 2; two of them leave the host and send by 10. One rank
// per host has 4 channels, which all leave it.
TEST(NcclMemory, of_a_ring_over_hosts_has_buffers_for_each_channel) {
  EXPECT_EQ(nccl_group_bytes(Group::gathers, 64, 8), (112 + 16 * 12 + 2 * 8) * kMiB);
  EXPECT_EQ(nccl_group_bytes(Group::gathers, 64, 64), (4 * 6 + 16 + 4 * 20) * kMiB);
}

// 4 channels, each with 16 chunks of 128 KiB in both directions.
TEST(NcclMemory, of_messages_over_hosts_is_shared_by_the_peers) {
  for (const int hosts : {8, 128})
    EXPECT_EQ(nccl_group_bytes(Group::shard_across, hosts, hosts), (4 * 6 + 16 + 4 * 4) * kMiB);
}

// The peers of a channel take 608 bytes for each rank.
TEST(NcclMemory, of_the_tables_grows_with_the_ranks) {
  const auto small = nccl_group_bytes(Group::other, 3449, 432);
  EXPECT_EQ(small, 22 * kMiB);
  EXPECT_EQ(nccl_group_bytes(Group::other, 3450, 432), 24 * kMiB);
}

// The mesh of 64 ranks on 8 hosts: fully sharded, and with tensor ranks in a host.
TEST(NcclMemory, of_a_mesh_is_the_sum_of_its_groups) {
  const auto fsdp = 22 + 106 + 320 + 112 + 56;  // other, all, gathers, inside, across
  EXPECT_EQ(nccl_memory_bytes({.shard = 64}, 8), fsdp * kMiB);
  const auto with_tensor = 22 + 106 + 112 + 120 + 56;  // gathers over 8 hosts, one rank on each
  EXPECT_EQ(nccl_memory_bytes({.shard = 8, .tensor = 8}, 8), with_tensor * kMiB);
  const auto hybrid = 22 + 106 + 112 + 112 + 120 + 56;  // gathers, inside; replicate, across
  EXPECT_EQ(nccl_memory_bytes({.replicate = 8, .shard = 8}, 8), hybrid * kMiB);
  const auto by_nccl = 22 + 106 + 2 * 320;  // gathers, and scatters in one level
  EXPECT_EQ(nccl_memory_bytes({.shard = 64}, 8, Reduce::nccl), by_nccl * kMiB);
  const auto one_host = 22 + 46 + 112 + 112;
  EXPECT_EQ(nccl_memory_bytes({.shard = 8}, 8), one_host * kMiB);
}

int held(const Mesh& mesh, int domain_ranks, Reduce reduce = Reduce::fp32) {
  const int ranks = mesh.world();
  Topology topology;
  topology.places.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank % domain_ranks == 0) topology.domains.push_back({.name = "", .ranks = {}});
    topology.domains.back().ranks.push_back(rank);
    topology.domain_of.push_back(rank / domain_ranks);
  }
  LoneWorld world(0, ranks);
  return held_multiprocessors(make_comms(world, mesh, &topology, reduce));
}

// Copy engines move what stays in a domain. Over several, each rank of a domain adds 4 channels.
TEST(NcclMemory, channels_of_axes_over_several_domains_hold_multiprocessors) {
  EXPECT_EQ(held_multiprocessors(make_comms()), 0);
  EXPECT_EQ(held({.shard = 8}, 8), 0);
  EXPECT_EQ(held({.replicate = 2, .shard = 2, .tensor = 2}, 8), 0);
  EXPECT_EQ(held({.shard = 16}, 8), 16);
  EXPECT_EQ(held({.shard = 4}, 2), 8);
  EXPECT_EQ(held({.shard = 8, .tensor = 8}, 8), 4);
  EXPECT_EQ(held({.replicate = 2, .shard = 8}, 8), 4);
  EXPECT_EQ(held({.replicate = 4, .shard = 4}, 8), 8);
  EXPECT_EQ(held({.shard = 8}, 8, Reduce::nccl), 16) << "kernels add";
  EXPECT_EQ(held({.shard = 8, .tensor = 8}, 8, Reduce::nccl), 4);
}

}  // namespace
}  // namespace lockstep::nccl_memory_test

// Sums of gradients on GPUs have the bits of those on CPUs.
#include "dist/reduction.h"

#include <gtest/gtest.h>

#include "core/gpu.h"
#include "tests/cuda/ranks_rig.h"
#include "train/layout.h"

namespace lockstep::testing::reduction_test {

struct Case {
  int ranks, per_domain;
  Reduce reduce;
  DType wire;
};

// The sum over four ranks that each rank gets, and then the sum of its part, added to that.
std::vector<std::vector<float>> sums_of(const Case& c, Ways ways) {
  constexpr std::int64_t kN = 15 * ReduceRing::kMultiple;
  Topology topology;
  for (int rank = 0; rank < c.ranks; ++rank)
    topology.domain_of.push_back(rank / c.per_domain);
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(c.ranks));
  run_thread_ranks(c.ranks, [&](World& host) {
    const auto own = world_of(ways, host);
    World& world = own ? *own : host;
    const auto device = device_of(ways, world.rank());
    constexpr std::int64_t kBytes = std::int64_t{1} << 20;
    Arenas arenas(device, {kBytes, kBytes}, world.allocate(kBytes));
    const auto comms = make_comms(world, Mesh{.replicate = c.ranks}, &topology, c.reduce);
    Stream stream(device, "scatters"), across(device, "across");
    // The ring of shorter sums: these take several chunks.
    const ReduceRing ring(arenas.device, c.reduce, c.wire, {&comms.replicate},
                          ReduceRing::kMultiple);
    const auto on_host = arenas.pinned.allocate("values", DType::fp32, {c.ranks * kN});
    for (std::int64_t i = 0; i < on_host.elements(); ++i)
      on_host.as<float>()[i] = static_cast<float>((i * 7 + world.rank() * 131) % 1009) / 97.0f;
    const auto all = arenas.device.allocate("all", DType::fp32, {c.ranks * kN});
    stream.copy(all, on_host);
    const ReduceRing::Streams streams{stream, across};
    ring.all_reduce(streams, comms.replicate, all);
    ring.reduce_scatter(streams, comms.replicate, all.rows(world.rank() * kN, kN), all, true);
    stream.copy(on_host, all);
    stream.synchronize();
    const auto* values = on_host.as<float>();
    sums[static_cast<std::size_t>(world.rank())].assign(values, values + on_host.elements());
  });
  return sums;
}

class ReductionsCuda : public ::testing::TestWithParam<Case> {};

TEST_P(ReductionsCuda, have_the_bits_of_cpus) {
  const Case& c = GetParam();
#ifndef LOCKSTEP_SIMT
  if (!has_nccl() || gpu::devices().count < c.ranks)
    GTEST_SKIP() << "each of " << c.ranks << " ranks needs a GPU of its own";
  if (c.reduce == Reduce::nccl) GTEST_SKIP() << "NCCL sums in an order of its own";
#endif
  EXPECT_EQ(sums_of(c, Ways::nccl), sums_of(c, Ways::threads));
}

INSTANTIATE_TEST_SUITE_P(all, ReductionsCuda,
                         ::testing::Values(Case{4, 2, Reduce::fp32, DType::bf16},
                                           Case{4, 2, Reduce::bf16, DType::bf16},
                                           Case{3, 1, Reduce::bf16, DType::bf16},
                                           Case{4, 4, Reduce::nccl, DType::bf16},
                                           Case{3, 1, Reduce::nccl, DType::fp32}),
                         [](const auto& c) {
                           return str(c.param.ranks, "_ranks_by_", c.param.per_domain, "_",
                                      name(c.param.reduce), "_of_", name(c.param.wire));
                         });

}  // namespace lockstep::testing::reduction_test

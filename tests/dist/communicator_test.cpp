#include "dist/communicator.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace lockstep::testing {
namespace {

TEST(Communicator, alone_a_rank_receives_what_it_sends) {
  Bench b;
  auto comms = make_comms(Mesh{});
  for (auto* group : {comms.world.get(), &comms[Axis::tensor]}) {
    EXPECT_EQ(group->rank(), 0);
    EXPECT_EQ(group->size(), 1);
    const auto sent = b.random({3, 5}, DType::bf16), kept = b.copy(sent);
    const auto gathered = b.poisoned({3, 5}, DType::bf16),
               swapped = b.poisoned({3, 5}, DType::bf16);
    group->all_gather(gathered, sent, b.stream);
    group->all_to_all(swapped, sent, b.stream);
    group->all_reduce(sent, ReduceOp::sum, b.stream);
    group->broadcast(sent, 0, b.stream);
    group->barrier();
    expect_bitwise_equal(gathered, kept, "gathered");
    expect_bitwise_equal(swapped, kept, "swapped");
    expect_bitwise_equal(sent, kept, "reduced");
    EXPECT_THROW(group->broadcast(sent, 1, b.stream), Error);
  }
}

TEST(Communicator, a_mesh_of_more_ranks_is_refused_by_its_axis) {
  try {
    make_comms(Mesh{{1, 8, 1}});
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("the shard axis has 8 ranks"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::testing

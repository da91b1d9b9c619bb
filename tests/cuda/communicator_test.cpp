// Collectives on tensors of a GPU: staged through the host, and by NCCL.
#include "dist/communicator.h"

#include <gtest/gtest.h>
#include <numeric>

#include "core/gpu.h"
#include "tests/cuda/ranks_rig.h"

namespace lockstep::testing::communicator_test {

// The values of each rank are a function of (rank, index), so that every rank can check its result.
std::int32_t value(int rank, std::int64_t i) {
  return static_cast<std::int32_t>((rank * 37 + i * 11) % 101) - 50;
}

// Member owns the stream and the memory of one rank. It fills tensors and checks them on the host.
class Member {
 public:
  explicit Member(Device device)
      : stream(device, "test"),
        arena_(device, Arena::Memory::device, 1 << 20),
        pinned_(device, Arena::Memory::pinned_host, 1 << 20) {}

  template <class F>
  Tensor filled(std::int64_t n, DType dtype, F&& f) {
    const auto host = pinned_.allocate("filled", dtype, {n});
    for (std::int64_t i = 0; i < n; ++i) {
      if (dtype == DType::fp32) host.as<float>()[i] = static_cast<float>(f(i));
      if (dtype == DType::int32) host.as<std::int32_t>()[i] = f(i);
      if (dtype == DType::bf16) host.as<BFloat16>()[i] = to_bf16(static_cast<float>(f(i)));
      if (dtype == DType::uint8) host.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(f(i));
    }
    const auto t = arena_.allocate("filled", dtype, {n});
    stream.copy(t, host);
    return t;
  }
  Tensor empty(std::int64_t n, DType dtype) { return arena_.allocate("empty", dtype, {n}); }

  template <class F>
  void expect(Tensor t, F&& f) {
    const auto host = pinned_.allocate("found", t.dtype, t.shape);
    stream.copy(host, t);
    stream.synchronize();
    for (std::int64_t i = 0; i < t.elements(); ++i)
      if (t.dtype == DType::uint8)
        ASSERT_EQ(host.as<std::uint8_t>()[i], static_cast<std::uint8_t>(f(i))) << i;
      else
        ASSERT_EQ(get(host, i), static_cast<double>(f(i))) << i;
  }

  Stream stream;

 private:
  Arena arena_, pinned_;
};

class CollectivesCuda : public ::testing::TestWithParam<Ways> {
 protected:
  static constexpr int kRanks = 3;

  template <class Body>
  static void on_ranks(Body&& body) {
    run_thread_ranks(kRanks, [&](World& host) {
      const auto world = world_of(GetParam(), host);
      std::vector<int> everyone(kRanks);
      std::iota(everyone.begin(), everyone.end(), 0);
      const auto group = world->connect({"test", everyone});
      Member member(device_of(GetParam(), host.rank()));
      body(*group, member);
    });
  }
  void SetUp() override {
#ifndef LOCKSTEP_SIMT
    if (GetParam() == Ways::nccl && (!has_nccl() || gpu::devices().count < kRanks))
      GTEST_SKIP() << "each of " << kRanks << " ranks needs a GPU of its own";
#endif
  }
};
INSTANTIATE_TEST_SUITE_P(all, CollectivesCuda, ::testing::Values(Ways::staged, Ways::nccl),
                         [](const auto& p) { return p.param == Ways::nccl ? "nccl" : "staged"; });

TEST_P(CollectivesCuda, move_the_right_values_also_in_place) {
  on_ranks([](Communicator& group, Member& m) {
    const int d = group.size(), me = group.rank();
    constexpr std::int64_t kN = 77;
    for (const auto dtype : {DType::fp32, DType::bf16, DType::int32, DType::uint8}) {
      const auto in = m.filled(kN, dtype, [&](std::int64_t i) { return value(me, i); });
      const auto gathered = m.empty(d * kN, dtype), in_place = m.empty(d * kN, dtype);
      const auto mine = in_place.rows(me * kN, kN);
      m.stream.copy(mine, in);
      group.all_gather(gathered, in, m.stream);
      group.all_gather(in_place, mine, m.stream);
      for (const auto& t : {gathered, in_place})
        m.expect(t, [&](std::int64_t i) { return value(static_cast<int>(i / kN), i % kN); });

      const auto pieces = m.filled(d * kN, dtype, [&](std::int64_t i) { return value(me, i); });
      const auto swapped = m.empty(d * kN, dtype);
      group.all_to_all(swapped, pieces, m.stream);
      m.expect(swapped,
               [&](std::int64_t i) { return value(static_cast<int>(i / kN), me * kN + i % kN); });

      group.broadcast(in, 1, m.stream);
      m.expect(in, [&](std::int64_t i) { return value(1, i); });
      const auto received = m.empty(d * kN, dtype);
      group.together([&] {
        group.send(pieces, (me + d - 1) % d, m.stream);
        group.receive(received, (me + 1) % d, m.stream);
      });
      m.expect(received, [&](std::int64_t i) { return value((me + 1) % d, i); });
      group.all_gather(m.empty(0, dtype), m.empty(0, dtype), m.stream);  // nothing
    }
    group.barrier(m.stream);
  });
}

// Each message has only two ranks.
TEST_P(CollectivesCuda, messages_from_rank_to_rank_keep_their_order) {
  on_ranks([](Communicator& group, Member& m) {
    const int d = group.size(), me = group.rank();
    for (const std::int64_t n : {1, 77, 3}) {
      const auto t = m.filled(n, DType::fp32, [&](std::int64_t i) { return value(me, i); });
      if (me > 0) group.receive(t, me - 1, m.stream);
      if (me + 1 < d) group.send(t, me + 1, m.stream);
      m.expect(t, [&](std::int64_t i) { return value(0, i); });
    }
  });
}

// These integers and their sums are numbers of bf16.
TEST_P(CollectivesCuda, reduce_scatter_sums_the_pieces_of_this_rank) {
  on_ranks([](Communicator& group, Member& m) {
    const int d = group.size(), me = group.rank();
    constexpr std::int64_t kN = 77;
    for (const auto dtype : {DType::fp32, DType::bf16}) {
      const auto pieces = m.filled(d * kN, dtype, [&](std::int64_t i) { return value(me, i); });
      const auto sum = m.empty(kN, dtype);
      group.reduce_scatter(sum, pieces, m.stream);
      m.expect(sum, [&](std::int64_t i) {
        std::int32_t expected = 0;
        for (int r = 0; r < d; ++r)
          expected += value(r, me * kN + i);
        return expected;
      });
    }
  });
}

TEST_P(CollectivesCuda, sums_and_maxima_are_those_of_all_ranks) {
  on_ranks([](Communicator& group, Member& m) {
    const int d = group.size(), me = group.rank();
    constexpr std::int64_t kN = 1013;
    for (const auto dtype : {DType::fp32, DType::bf16, DType::int32}) {
      const auto sums = m.filled(kN, dtype, [&](std::int64_t i) { return value(me, i); });
      const auto most = m.filled(kN, dtype, [&](std::int64_t i) { return value(me, i); });
      group.together([&] {
        group.all_reduce(sums, ReduceOp::sum, m.stream);
        group.all_reduce(most, ReduceOp::max, m.stream);
      });
      m.expect(sums, [&](std::int64_t i) {
        std::int32_t sum = 0;
        for (int r = 0; r < d; ++r)
          sum += value(r, i);
        return sum;
      });
      m.expect(most, [&](std::int64_t i) {
        auto largest = value(0, i);
        for (int r = 1; r < d; ++r)
          largest = std::max(largest, value(r, i));
        return largest;
      });
    }
  });
}

// The ranks of a group create it, in their order. A group of one rank needs no other rank.
TEST_P(CollectivesCuda, groups_have_the_order_of_their_list_of_ranks) {
  run_thread_ranks(kRanks, [](World& host) {
    const auto world = world_of(GetParam(), host);
    Member m(device_of(GetParam(), host.rank()));
    const int me = world->rank();
    const auto turned = world->connect({"turned", {2, 0, 1}});
    EXPECT_EQ(turned->rank(), (me + 1) % kRanks);
    const auto pair =
        world->connect({"pair", me == 1 ? std::vector<int>{1} : std::vector<int>{2, 0}});
    EXPECT_EQ(pair->size(), me == 1 ? 1 : 2);
    EXPECT_EQ(pair->rank(), me == 0 ? 1 : 0);
    const auto one = m.filled(1, DType::int32, [&](std::int64_t) { return me; });
    const auto all = m.empty(kRanks, DType::int32);
    turned->all_gather(all, one, m.stream);
    m.expect(all, [](std::int64_t i) { return (i + 2) % kRanks; });
    const auto of_pair = m.empty(pair->size(), DType::int32);
    pair->all_gather(of_pair, one, m.stream);
    m.expect(of_pair, [&](std::int64_t i) { return me == 1 ? 1 : i == 0 ? 2 : 0; });
  });
}

}  // namespace lockstep::testing::communicator_test

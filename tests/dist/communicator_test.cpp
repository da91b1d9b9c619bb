#include "dist/communicator.h"

#include <chrono>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

#include "core/op_log.h"
#include "tests/dist/socket_ranks.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing::communicator_test {

TEST(Communicator, collectives_of_one_rank_copy_its_data) {
  Bench b;
  auto comms = make_comms();
  for (auto* group : {comms.all.get(), comms.tensor.get()}) {
    EXPECT_EQ(group->rank(), 0);
    EXPECT_EQ(group->size(), 1);
    const auto sent = b.random({3, 5}, DType::bf16), kept = b.copy(sent);
    const auto gathered = b.poisoned({3, 5}, DType::bf16),
               swapped = b.poisoned({3, 5}, DType::bf16);
    group->all_gather(gathered, sent, b.stream);
    group->all_to_all(swapped, sent, b.stream);
    group->all_reduce(sent, ReduceOp::sum, b.stream);
    group->broadcast(sent, 0, b.stream);
    group->barrier(b.stream);
    expect_bitwise_equal(gathered, kept, "gathered");
    expect_bitwise_equal(swapped, kept, "swapped");
    expect_bitwise_equal(sent, kept, "reduced");
    EXPECT_THROW(group->broadcast(sent, 1, b.stream), Error);
    EXPECT_EQ(group->traffic(Collective::all_gather), Communicator::Traffic{});
  }
}

// Data and expected results are functions of (rank, index).
float value(int rank, std::int64_t i) {
  return static_cast<float>((rank * 37 + i * 11) % 101) - 50.0f;
}

std::vector<int> everyone(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

enum class Carrier : std::uint8_t { addresses, shared_memory, tcp };

// Collectives runs collectives of each world on streams of both modes.
class Collectives : public ::testing::TestWithParam<std::tuple<int, Stream::Mode, Carrier>> {
 protected:
  // Calls body(group, bench, stream) on each rank.
  template <class Body>
  void on_ranks(Body&& body) {
    const auto [ranks, mode, carrier] = GetParam();
    const auto on_rank = [&, n = ranks, m = mode](World& world) {
      const auto group = world.connect({"test", everyone(n)});
      Bench bench{.threads = 1};
      Stream stream(Device{}, "test", m);
      body(*group, bench, stream);
    };
    if (carrier == Carrier::addresses) return run_thread_ranks(ranks, on_rank);
    run_socket_ranks(ranks, carrier == Carrier::shared_memory, on_rank);
  }
};

template <class F>
void expect_elements(ConstTensor t, F&& expected) {
  for (std::int64_t i = 0; i < t.elements(); ++i)
    ASSERT_EQ(get(t, i), static_cast<double>(expected(i))) << i;
}

template <class F>
Tensor filled(Bench& b, std::int64_t n, F&& f) {
  const auto t = b.poisoned({n}, DType::fp32);
  for (std::int64_t i = 0; i < n; ++i)
    t.as<float>()[i] = f(i);
  return t;
}

TEST_P(Collectives, all_gather_collects_all_parts_in_order_also_in_place) {
  on_ranks([](Communicator& group, Bench& b, Stream& stream) {
    constexpr std::int64_t kN = 1000;
    const auto in = filled(b, kN, [&](std::int64_t i) { return value(group.rank(), i); });
    const auto out = b.poisoned({group.size() * kN}, DType::fp32),
               in_place = b.poisoned({group.size() * kN}, DType::fp32);
    const auto mine = in_place.rows(group.rank() * kN, kN);
    stream.copy(mine, in);
    group.all_gather(out, in, stream);
    group.all_gather(in_place, mine, stream);
    stream.synchronize();
    for (const auto& t : {out, in_place})
      expect_elements(t, [&](std::int64_t i) { return value(static_cast<int>(i / kN), i % kN); });
    if (group.size() > 1) {
      EXPECT_EQ(group.traffic(Collective::all_gather),
                (Communicator::Traffic{2, 2 * (group.size() - 1) * kN * 4}));
    }
  });
}

TEST_P(Collectives, all_to_all_sends_piece_r_to_rank_r) {
  on_ranks([](Communicator& group, Bench& b, Stream& stream) {
    const int d = group.size(), me = group.rank();
    constexpr std::int64_t kN = 77;
    const auto in = filled(b, d * kN, [&](std::int64_t i) { return value(me, i); });
    const auto out = b.poisoned({d * kN}, DType::fp32);
    group.all_to_all(out, in, stream);
    stream.synchronize();
    expect_elements(
        out, [&](std::int64_t i) { return value(static_cast<int>(i / kN), me * kN + i % kN); });
  });
}

// The sum of these fractions depends on its order. The library rounds bf16 where it likes.
TEST_P(Collectives, reduce_scatter_sums_the_pieces_of_this_rank) {
  on_ranks([](Communicator& group, Bench& b, Stream& stream) {
    const int d = group.size(), me = group.rank();
    constexpr std::int64_t kN = 1013;
    const auto fraction = [](int rank, std::int64_t i) { return value(rank, i) / 7.0f; };
    for (const auto dtype : {DType::fp32, DType::bf16}) {
      const auto in = b.poisoned({d * kN}, dtype), out = b.poisoned({kN}, dtype);
      for (std::int64_t i = 0; i < d * kN; ++i)
        Bench::set(in, i, fraction(me, i));
      group.reduce_scatter(out, in, stream);
      stream.synchronize();
      const double rounding = dtype == DType::fp32 ? 0x1p-24 : 0x1p-8;
      for (std::int64_t i = 0; i < kN; ++i) {
        double sum = 0, size = 0;
        for (int r = 0; r < d; ++r) {
          sum += fraction(r, me * kN + i);
          size += std::abs(fraction(r, me * kN + i));
        }
        // Each term is rounded, and each of d - 1 sums.
        ASSERT_NEAR(get(out, i), sum, d * rounding * size) << i;
      }
      if (d > 1) {
        const auto piece = kN * bytes_per_element(dtype);
        EXPECT_EQ(group.traffic(Collective::reduce_scatter).bytes,
                  (d - 1) * (dtype == DType::fp32 ? piece : 3 * piece));
      }
    }
  });
}

TEST_P(Collectives, all_reduce_gives_every_rank_the_same_bits) {
  on_ranks([](Communicator& group, Bench& b, Stream& stream) {
    const int d = group.size();
    constexpr std::int64_t kN = 1013;
    // The sum of these fractions depends on its order.
    const auto fraction = [](int rank, std::int64_t i) { return value(rank, i) / 7.0f; };
    const auto sum = filled(b, kN, [&](std::int64_t i) { return fraction(group.rank(), i); });
    const auto most = b.copy(sum);
    const auto counts = b.poisoned({1}, DType::int32);
    *counts.as<std::int32_t>() = 1 << group.rank();
    group.all_reduce(sum, ReduceOp::sum, stream);
    group.all_reduce(most, ReduceOp::max, stream);
    group.all_reduce(counts, ReduceOp::sum, stream);
    stream.synchronize();
    expect_elements(sum, [&](std::int64_t i) {
      float s = fraction(0, i);
      for (int r = 1; r < d; ++r)
        s += fraction(r, i);
      return s;
    });
    expect_elements(most, [&](std::int64_t i) {
      float m = fraction(0, i);
      for (int r = 1; r < d; ++r)
        m = std::max(m, fraction(r, i));
      return m;
    });
    EXPECT_EQ(*counts.as<std::int32_t>(), (1 << d) - 1);
  });
}

TEST_P(Collectives, broadcast_and_messages_arrive) {
  on_ranks([](Communicator& group, Bench& b, Stream& stream) {
    const int d = group.size(), me = group.rank();
    constexpr std::int64_t kN = 55;
    const auto mine = filled(b, kN, [&](std::int64_t i) { return value(me, i); });
    const auto from_last = b.copy(mine), from_left = b.poisoned({kN}, DType::fp32);
    group.broadcast(from_last, d - 1, stream);
    const auto counted = [&](Collective kind) { return group.traffic(kind); };
    if (d > 1) {
      group.together([&] {
        group.send(mine, (me + 1) % d, stream);
        group.receive(from_left, (me + d - 1) % d, stream);
      });
      EXPECT_EQ(counted(Collective::send), (Communicator::Traffic{1, 0}));
      EXPECT_EQ(counted(Collective::receive), (Communicator::Traffic{1, 4 * kN}));
    }
    group.barrier(stream);
    stream.synchronize();
    expect_elements(from_last, [&](std::int64_t i) { return value(d - 1, i); });
    if (d > 1)
      expect_elements(from_left, [&](std::int64_t i) { return value((me + d - 1) % d, i); });
  });
}

// Only two ranks take part in each message, as between the stages of a pipeline.
TEST_P(Collectives, messages_from_rank_to_rank_keep_their_order) {
  on_ranks([](Communicator& group, Bench& b, Stream& stream) {
    const int d = group.size(), me = group.rank();
    for (const std::int64_t n : {1, 55, 3}) {
      auto t = filled(b, n, [&](std::int64_t i) { return value(me, i); });
      if (me > 0) group.receive(t, me - 1, stream);
      if (me + 1 < d) group.send(t, me + 1, stream);
      stream.synchronize();
      expect_elements(t, [&](std::int64_t i) { return value(0, i); });
    }
  });
}

// Messages are so long that a rank cannot send them before the other one receives them.
TEST_P(Collectives, messages_and_collectives_do_not_wait_for_each_other) {
  on_ranks([](Communicator& group, Bench& b, Stream& stream) {
    const int d = group.size(), me = group.rank(), left = (me + d - 1) % d, right = (me + 1) % d;
    if (d == 1) return;
    constexpr std::int64_t kN = 1 << 20;
    const auto sent = filled(b, kN, [&](std::int64_t i) { return value(me, i); });
    const auto from_left = b.poisoned({kN}, DType::fp32),
               from_right = b.poisoned({kN}, DType::fp32);
    const auto ones = filled(b, kN, [](std::int64_t) { return 1.0f; });
    group.together([&] {  // a ring in both directions, with a collective between the messages
      group.send(sent, right, stream);
      if (me == 0) group.all_reduce(ones, ReduceOp::sum, stream);
      group.send(sent, left, stream);
      group.receive(from_left, left, stream);
      if (me > 0) group.all_reduce(ones, ReduceOp::sum, stream);
      group.receive(from_right, right, stream);
    });
    stream.synchronize();
    for (std::int64_t i = 0; i < kN; ++i)
      ASSERT_TRUE(from_left.as<float>()[i] == value(left, i) &&
                  from_right.as<float>()[i] == value(right, i) &&
                  ones.as<float>()[i] == static_cast<float>(d))
          << i;
  });
}

TEST(ThreadWorld, a_message_of_another_size_is_an_error) {
  const auto run = [] {
    run_thread_ranks(2, [](World& world) {
      const auto group = world.connect({"test", everyone(2)});
      Bench b{.threads = 1};
      if (world.rank() == 0) group->send(b.poisoned({3}, DType::fp32), 1, b.stream);
      if (world.rank() == 1) group->receive(b.poisoned({4}, DType::fp32), 0, b.stream);
    });
  };
  EXPECT_THROW(run(), Error);
}

INSTANTIATE_TEST_SUITE_P(
    all, Collectives,
    ::testing::Combine(::testing::Values(1, 2, 3, 8),
                       ::testing::Values(Stream::Mode::immediate, Stream::Mode::queued),
                       ::testing::Values(Carrier::addresses, Carrier::shared_memory,
                                         Carrier::tcp)));

// The log of a running stream has its collectives, with the waits of their ranks.
TEST(ThreadWorld, an_op_log_has_the_times_of_collectives) {
  std::array<std::chrono::steady_clock::time_point, 3> entered;
  run_thread_ranks(3, [&](World& world) {
    const auto group = world.connect({"test", everyone(3)});
    Bench b{.threads = 1};
    const auto part = filled(b, 2, [](std::int64_t) { return 1.0f; });
    const auto whole = filled(b, 6, [](std::int64_t) { return 0.0f; });
    OpLog log;
    b.stream.set_op_log(&log);
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    entered[static_cast<std::size_t>(world.rank())] = std::chrono::steady_clock::now();
    group->all_gather(whole, part, b.stream);
    b.stream.set_op_log(nullptr);
    group->all_gather(whole, part, b.stream);
    ASSERT_EQ(log.entries().size(), 1u);
    const auto& entry = log.entries()[0];
    EXPECT_STREQ(entry.op.name, "all_gather");
    EXPECT_EQ(entry.op.group, Group::other);
    EXPECT_EQ(entry.op.kind, Op::Kind::collective);
    EXPECT_EQ(entry.op.bytes, 16);
    EXPECT_EQ(entry.op.ranks, 3);
    const std::chrono::duration<double> late = entered[2] - entered[0];
    EXPECT_GE(entry.seconds, world.rank() == 0 ? late.count() - 0.005 : 0.0);
  });
}

TEST(Comms, calls_of_a_group_count_for_the_component_of_its_axis) {
  LoneWorld world(0, 8);
  auto comms = make_comms(world, Mesh{.replicate = 2, .shard = 2, .tensor = 2});
  Stream stream(Device{}, "measure", Stream::Mode::measuring);
  OpLog log;
  stream.set_op_log(&log);
  for (const auto& [group, component] :
       {std::pair(comms.all.get(), Component::communication_ranks),
        std::pair(comms.tensor.get(), Component::communication_tensor),
        std::pair(comms.gathers.get(), Component::communication_shard),
        std::pair(comms.shard.whole.get(), Component::communication_shard),
        std::pair(comms.shard.across.get(), Component::communication_shard),
        std::pair(comms.replicate.whole.get(), Component::communication_replicate),
        std::pair(comms.replicate.across.get(), Component::communication_replicate)}) {
    group->barrier(stream);
    ASSERT_FALSE(log.entries().empty());
    EXPECT_EQ(component_of(log.entries().back().op.group), component) << group->name();
  }
}

TEST(ThreadWorld, groups_of_a_mesh_do_not_interfere) {
  const Mesh mesh{.replicate = 2, .shard = 2, .tensor = 2};
  run_thread_ranks(8, [&](World& world) {
    auto comms = make_comms(world, mesh);
    Bench b{.threads = 1};
    const auto one = filled(b, 1, [&](std::int64_t) { return static_cast<float>(world.rank()); });
    const auto sum_over = [&](Communicator& group) {
      const auto t = b.copy(one);
      group.all_reduce(t, ReduceOp::sum, b.stream);
      return get(t, 0);
    };
    const auto expected = [&](Axis axis) {
      const auto peers = mesh.peers(axis, world.rank());
      return static_cast<double>(std::accumulate(peers.begin(), peers.end(), 0));
    };
    EXPECT_EQ(sum_over(*comms.tensor), expected(Axis::tensor));
    EXPECT_EQ(sum_over(*comms.gathers), expected(Axis::shard));
    EXPECT_EQ(sum_over(*comms.shard.inside), expected(Axis::shard));
    EXPECT_EQ(sum_over(*comms.replicate.whole), expected(Axis::replicate));
    EXPECT_EQ(sum_over(*comms.all), 28.0);
  });
}

TEST(ThreadWorld, a_failed_rank_ends_the_waits_of_all_others) {
  for (const auto mode : {Stream::Mode::immediate, Stream::Mode::queued}) {
    try {
      run_thread_ranks(4, [&](World& world) {
        const auto group = world.connect({"test", everyone(4)});
        Bench b{.threads = 1};
        Stream stream(Device{}, "test", mode);
        if (world.rank() == 2) throw DataError("a bad shard");
        for (;;) {
          group->barrier(stream);
          stream.synchronize();
        }
      });
      FAIL() << "no rank threw";
    } catch (const DataError& error) {
      EXPECT_STREQ(error.what(), "a bad shard");
    }
  }
}

TEST(Communicator, invalid_arguments_are_rejected) {
  Bench b;
  LoneCommunicator group("test", 1, 4);
  Stream measure(Device{}, "measure", Stream::Mode::measuring);
  const auto four = b.poisoned({4}, DType::fp32), three = b.poisoned({3}, DType::fp32),
             half = b.poisoned({4}, DType::bf16), bytes = b.poisoned({16}, DType::uint8);
  const auto sixteen = b.poisoned({16}, DType::fp32);
  EXPECT_THROW(group.all_reduce(bytes, ReduceOp::sum, measure), Error);
  EXPECT_THROW(group.all_gather(four, four, measure), Error);
  EXPECT_THROW(group.all_gather(sixteen, half, measure), Error);
  EXPECT_THROW(group.reduce_scatter(four, four, measure), Error);
  EXPECT_THROW(group.reduce_scatter(half, sixteen, measure), Error);
  EXPECT_THROW(group.reduce_scatter(b.poisoned({4}, DType::uint8), bytes, measure), Error);
  EXPECT_THROW(group.all_to_all(b.poisoned({3}, DType::fp32), three, measure), Error);
  EXPECT_THROW(group.all_to_all(four, four, measure), Error);
  EXPECT_THROW(group.broadcast(four, 4, measure), Error);
  EXPECT_THROW(group.send(four, -1, measure), Error);
  EXPECT_THROW(group.send(four, 1, measure), Error);  // itself
  EXPECT_THROW(group.receive(four, 4, measure), Error);
  EXPECT_THROW(group.receive(four, 1, measure), Error);
  group.all_gather(sixteen, four, measure);  // measured, and counted
  EXPECT_EQ(group.traffic(Collective::all_gather), (Communicator::Traffic{1, 48}));
  EXPECT_THROW(group.all_gather(sixteen, four, b.stream), Error);  // there is no other rank
}

}  // namespace lockstep::testing::communicator_test

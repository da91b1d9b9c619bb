#include "dist/job/socket_world.h"

#include <filesystem>
#include <numeric>
#include <set>

#include "core/arena.h"
#include "core/system/interfaces.h"
#include "dist/job/control_world.h"
#include "tests/dist/job.h"
#include "tests/dist/socket_ranks.h"
#include "tests/dist/words.h"
#include "tests/testing.h"

namespace lockstep::testing::socket_world_test {

// Fractions whose sums depend on their order.
float fraction(int rank, std::int64_t i) {
  return static_cast<float>((rank * 37 + i * 11) % 101 - 50) / 7.0f;
}

// Sums of these groups have the bits of a loop in the order that dist/host_reduce.h states.
class SocketSums : public ::testing::TestWithParam<std::tuple<bool, std::vector<int>>> {
 protected:
  // The sum for rank `of` of elements i of all ranks of a group of d: in the order of ranks, or of
  // NCCL's ring.
  static float sum(int d, std::int64_t i, int first) {
    float s = fraction(first % d, i);
    for (int r = 1; r < d; ++r)
      s += fraction((first + r) % d, i);
    return s;
  }

  template <class Expected>
  static void expect_bits(ConstTensor t, const char* what, Expected&& expected) {
    for (std::int64_t i = 0; i < t.elements(); ++i)
      if (t.as<float>()[i] != expected(i))
        FAIL() << what << ": element " << i << " of " << t.elements() << " is " << t.as<float>()[i]
               << ", expected " << expected(i);
  }

  static void check(Communicator& group, Stream& stream, std::int64_t n) {
    const int d = group.size(), me = group.rank();
    Arena arena(Device{}, Arena::Memory::host, 16 * (d + 1) * (n + 64));
    const auto whole = arena.allocate("whole", DType::fp32, {d * n}),
               pieces = arena.allocate("pieces", DType::fp32, {d * n}),
               part = arena.allocate("part", DType::fp32, {n});
    for (std::int64_t i = 0; i < d * n; ++i)
      pieces.as<float>()[i] = fraction(me, i);
    group.reduce_scatter(part, pieces, stream);
    group.all_gather(whole, part, stream);
    const auto reduced = pieces.rows(0, d > 2 ? d * n : n);
    group.all_reduce(reduced, ReduceOp::sum, stream);
    expect_bits(whole, "reduce_scatter",
                [&](std::int64_t i) { return sum(d, i, static_cast<int>(i / n) + 1); });
    expect_bits(reduced, "all_reduce", [&](std::int64_t i) { return sum(d, i, 0); });
  }
};

TEST_P(SocketSums, have_the_order_of_ranks_at_each_size) {
  const auto& [share_memory, members] = GetParam();
  run_socket_ranks(4, share_memory, [&, &ranks = members](World& world) {
    const bool is_member = std::find(ranks.begin(), ranks.end(), world.rank()) != ranks.end();
    const auto group = world.connect({"test", is_member ? ranks : std::vector<int>{world.rank()}});
    Stream stream(Device{}, "test", Stream::Mode::immediate);
    if (!is_member) return;
    for (const std::int64_t n : {0, 1, 1013, 40'001, 1 << 20})
      check(*group, stream, n);
  });
}

INSTANTIATE_TEST_SUITE_P(
    all, SocketSums,
    ::testing::Combine(::testing::Bool(), ::testing::Values(std::vector{3, 1}, std::vector{0, 2, 3},
                                                            std::vector{0, 1, 2, 3})));

TEST(SocketWorld, ranks_of_a_host_share_memory_unless_it_is_off) {
  for (const bool share_memory : {true, false})
    run_socket_ranks(2, share_memory, [&](World& world) {
      const auto group = world.connect({"test", {0, 1}});
      world.exchange("connected");
      EXPECT_EQ(has_rings(), share_memory);
      world.exchange("looked");
    });
  EXPECT_FALSE(has_rings());
}

TEST(SocketWorld, publishes_the_addresses_of_the_named_interfaces) {
  LoneWorld lone;
  const auto secret = Secret::draw();
  EXPECT_EQ(SocketWorld(lone, {.secret = secret, .interfaces = "lo"}).addresses().front(),
            "127.0.0.1");
  EXPECT_EQ(SocketWorld(lone, {.secret = secret}).addresses(), local_addresses());
  run_thread_ranks(2, [&](World& world) {
    SocketWorld sockets(world, {.secret = secret, .interfaces = "none"});
    EXPECT_THROW(sockets.connect({"test", {0, 1}}), ConfigError);
  });
}

TEST(SocketWorld, groups_of_a_mesh_do_not_interfere) {
  const Mesh mesh{.replicate = 2, .shard = 2, .tensor = 2};
  run_socket_ranks(8, true, [&](World& world) {
    auto comms = make_comms(world, mesh);
    Bench b{.threads = 1, .host_bytes = std::int64_t{1} << 20};
    for (int round = 0; round < 20; ++round)
      for (const auto& [group, axis] : {std::pair(comms.tensor.get(), Axis::tensor),
                                        {comms.gathers.get(), Axis::shard},
                                        {comms.replicate.whole.get(), Axis::replicate}}) {
        const auto t = b.poisoned({1}, DType::fp32);
        *t.as<float>() = static_cast<float>(world.rank());
        group->all_reduce(t, ReduceOp::sum, b.stream);
        const auto peers = mesh.peers(axis, world.rank());
        EXPECT_EQ(get(t, 0), std::accumulate(peers.begin(), peers.end(), 0));
      }
  });
}

TEST(SocketWorld, a_rank_with_another_secret_is_rejected) {
  for (const bool share_memory : {true, false}) {
    const auto secrets = std::array{Secret::draw(), Secret::draw()};
    std::array<std::string, 2> thrown;
    run_thread_ranks(2, [&](World& world) {
      const auto me = static_cast<std::size_t>(world.rank());
      SocketWorld sockets(
          world,
          {.secret = secrets[me], .shares_memory = share_memory, .start = Milliseconds(1000)});
      try {
        sockets.connect({"test", {0, 1}});
      } catch (const Error& error) {
        thrown[me] = error.what();
      }
    });
    expect_contains(thrown[0], "rank 1 did not connect; rejected ");
    expect_contains(thrown[0], "it does not have the job's secret");
    expect_contains(thrown[1], "rank 1 cannot reach rank 0: ");
  }
}

// Ranks 0 and 1 wait in a barrier for rank 2, whose end closes its connections.
TEST(SocketWorld, a_rank_that_ends_ends_the_waits_of_the_others) {
  for (const bool share_memory : {true, false}) {
    std::array<std::string, 3> thrown;
    run_socket_ranks(3, share_memory, [&](World& world) {
      auto group = world.connect({"test", {0, 1, 2}});
      group->belongs_to(Group::other, {10, 11, 12});  // numbers in a mesh
      Stream stream(Device{}, "test", Stream::Mode::immediate);
      group->barrier(stream);
      if (world.rank() == 2) {
        std::this_thread::sleep_for(Milliseconds(50));  // the others sleep
        group.reset();
      }
      try {
        if (group) group->barrier(stream);
      } catch (const TransientError& error) {
        thrown[static_cast<std::size_t>(world.rank())] = error.what();
      }
      world.exchange("");  // ranks 0 and 1 do not see the end of each other
    });
    for (const auto& text : {thrown[0], thrown[1]})
      expect_contains(text,
                      str("to rank 12 (host ", host_name(), ", pid ", getpid(), ") is lost: "));
    if (share_memory) expect_words("dist/socket_world", "a rank ended", thrown[0]);
  }
}

// Three processes reduce without end until one is killed.
TEST(SocketWorld, a_killed_process_ends_the_others_and_leaves_no_memory) {
  const auto files = [] {
    std::set<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
      names.insert(file.path());
    return names;
  };
  const auto before = files();
  // Files of other tests go away.
  const auto is_clean = [&] {
    auto left = files();
    for (const auto& name : before)
      left.erase(name);
    return eventually([&] {
      std::erase_if(left, [](const auto& name) { return !std::filesystem::exists(name); });
      return left.empty();
    });
  };
  const Job job(3);
  const ReservedPort port;
  Processes ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.start([&, rank] {
      const auto world = meet_at_address({.way = Rendezvous::Way::address,
                                          .rank = rank,
                                          .ranks = 3,
                                          .address = "127.0.0.1",
                                          .port = port.number(),
                                          .secret = job.secret});
      const auto group = world->connect({"test", {0, 1, 2}});
      Arena arena(Device{}, Arena::Memory::host, 1 << 20);
      const auto sums = arena.allocate("sums", DType::fp32, {100'001});
      Stream stream(Device{}, "test", Stream::Mode::immediate);
      try {
        for (;;)
          group->all_reduce(sums, ReduceOp::sum, stream);
      } catch (const TransientError& error) {
        _exit(error.exit_code());
      }
      return 0;
    });
  std::this_thread::sleep_for(Milliseconds(500));
  EXPECT_FALSE(ranks.ended(0) || ranks.ended(1) || ranks.ended(2));
  EXPECT_TRUE(is_clean());
  ranks.signal(1, SIGKILL);
  EXPECT_TRUE(eventually([&] { return ranks.all_ended({0, 1, 2}); }));
  EXPECT_EQ(ranks.ended(0), 75);
  EXPECT_EQ(ranks.ended(2), 75);
  EXPECT_TRUE(is_clean());
}

}  // namespace lockstep::testing::socket_world_test

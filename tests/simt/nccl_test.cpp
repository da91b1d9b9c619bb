// Tests dist/nccl_world with a faulty NCCL.
#include "tests/simt/nccl.h"

#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include "core/arena.h"
#include "dist/job/control_world.h"
#include "dist/nccl_world.h"
#include "tests/dist/job.h"
#include "tests/support/thread_world.h"

namespace lockstep::nccl_test {

constexpr Device kGpu{Device::Kind::cuda, 0};

// The exit code and the message of the first rank that failed.
std::string thrown(int ranks, const std::function<void(World&)>& body) {
  try {
    run_thread_ranks(ranks, body);
  } catch (const Error& error) {
    return str(error.exit_code(), " ", error.what());
  }
  return "";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
}

// A rank that sends the first messages of make_nccl_world() and then does not connect.
// All ranks have the variables that make_nccl_world() sets.
std::string usual_words() {
  setenv("NCCL_PAT_ENABLE", "0", 1);
  return nccl_in_words();
}
void say_only(World& host, const std::string& words = usual_words()) {
  host.exchange(words);
  host.exchange("");
}

TEST(NcclWorld, times_out_if_a_rank_does_not_connect) {
  const auto said = thrown(3, [](World& host) {
    if (host.rank() == 2) return say_only(host);
    make_nccl_world(host, kGpu, std::chrono::milliseconds(200));
  });
  expect_contains(said, "75 NCCL in the group 'all': ncclCommInitRank: its ranks did not connect");
  expect_contains(said, "within 0.2 s");
}

TEST(NcclWorld, times_out_if_a_rank_does_not_create_a_group) {
  const auto said = thrown(2, [](World& host) {
    const auto world = make_nccl_world(host, kGpu, std::chrono::milliseconds(200));
    if (host.rank() == 0) world->connect({"tensor", {0, 1}});
    world->exchange("");
  });
  expect_contains(said, "75 NCCL in the group 'tensor': ncclCommSplit: its ranks did not connect");
}

TEST(NcclWorld, rejects_ranks_with_a_different_nccl) {
  const auto said = thrown(2, [](World& host) {
    if (host.rank() == 1) return say_only(host, "2.27.3 NCCL_ALGO=Ring");
    make_nccl_world(host, kGpu);
  });
  expect_contains(said, "78 rank 1 has NCCL 2.27.3 NCCL_ALGO=Ring, rank 0 has 2.28.9");
}

TEST(NcclWorld, a_launch_order_that_could_deadlock_is_rejected) {
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  const auto said = thrown(2, [](World& host) { make_nccl_world(host, kGpu); });
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  expect_contains(said, "78 NCCL_LAUNCH_ORDER_IMPLICIT=0: ");
}

TEST(NcclWorld, a_driver_that_does_not_order_launches_is_rejected) {
  simt::set_driver(12020);
  const auto said = thrown(2, [](World& host) { make_nccl_world(host, kGpu); });
  simt::set_driver(13000);
  expect_contains(said, "78 the NVIDIA driver supports CUDA up to 12.2; ");
}

TEST(NcclWorld, an_error_of_nccl_aborts_every_rank) {
  const auto said = thrown(2, [](World& host) {
    const auto world = make_nccl_world(host, kGpu);
    const auto pair = world->connect({"pair", {0, 1}});
    world->exchange("");
    if (host.rank() == 0) {
      simt::break_nccl(0);
      host.exchange("waits for what will not come");
    }
    Stream stream(kGpu, "test");
    pair->barrier(stream);  // rank 0 does not enter it
  });
  simt::break_nccl(-1);
  expect_contains(said, "NCCL in the group 'pair': ");
}

// ncclCommAbort of one group waits for its stream, which waits for a collective of another group.
TEST(NcclWorld, an_abort_ends_all_groups_of_a_stuck_stream) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto said = thrown(2, [](World& host) {
    const auto world = make_nccl_world(host, kGpu);
    const auto first = world->connect({"first", {0, 1}}),
               second = world->connect({"second", {0, 1}});
    Stream stream(kGpu, "test");
    first->barrier(stream);
    if (host.rank() == 0) {
      simt::hang_nccl(0);
      second->barrier(stream);  // rank 1 does not enter it
      simt::break_nccl(0);
    }
    for (;;) {  // until the failure of rank 0 aborts both
      host.exchange("waits");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  simt::break_nccl(-1);
  expect_contains(said, "NCCL in the group 'first': while it ran: ");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST(NcclWorld, other_ranks_get_the_group_and_the_message_of_an_nccl_error) {
  std::string first;
  std::mutex mutex;
  thrown(2, [&](World& host) {
    const auto world = make_nccl_world(host, kGpu);
    const auto pair = world->connect({"pair", {0, 1}});
    if (world->exchange("").size() == 2 && host.rank() == 0) simt::break_nccl(0);
    try {
      world->exchange("waits");
      for (;;)
        world->exchange("and waits");
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      first = error.what();
      throw;
    }
  });
  simt::break_nccl(-1);
  expect_contains(first, "rank 0 failed: NCCL in the group 'pair': while it ran: ");
  expect_contains(first, "the cable is out");
}

// Memory allocates tensors without values on one rank.
struct Memory {
  Tensor tensor(std::int64_t n) { return arena.allocate("tensor", DType::fp32, {n}); }
  Arena arena{kGpu, Arena::Memory::device, 1 << 16};
  Stream stream{kGpu, "test"};
};

// srun and torchrun start ranks in this way, without MPI.
TEST(NcclWorld, ranks_without_mpi_connect_over_the_control_channel) {
  const auto said = testing::run_ranks(testing::Job(3), [](Control& control) {
    const auto bytes = make_control_world(control, [](const std::string&, int) {});
    const auto world = make_nccl_world(*bytes, kGpu);
    const auto all = world->connect({"all ranks", {0, 1, 2}});
    Memory memory;
    Arena pinned(kGpu, Arena::Memory::pinned_host, 1 << 12);
    const auto mine = pinned.allocate("mine", DType::fp32, {1}),
               found = pinned.allocate("found", DType::fp32, {3});
    *mine.as<float>() = static_cast<float>(control.rank());
    const auto one = memory.tensor(1), gathered = memory.tensor(3);
    memory.stream.copy(one, mine);
    all->all_gather(gathered, one, memory.stream);
    memory.stream.copy(found, gathered);
    memory.stream.synchronize();
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(found.as<float>()[rank], static_cast<float>(rank));
  });
  EXPECT_EQ(said, std::vector<std::string>(3));
}

TEST(NcclWorld, the_simulated_nccl_finds_ranks_with_different_calls) {
  const auto said = thrown(2, [](World& host) {
    const auto world = make_nccl_world(host, kGpu);
    const auto pair = world->connect({"pair", {0, 1}});
    Memory memory;
    const auto n = 5 + host.rank();
    pair->all_gather(memory.tensor(2 * n), memory.tensor(n), memory.stream);
  });
  expect_contains(said,
                  "ncclAllGather: an error of the simulated NCCL: ranks make different calls");
}

// NCCL would overwrite other memory of a peer.
TEST(NcclWorld, the_simulated_nccl_finds_memory_at_different_offsets) {
  const auto said = thrown(2, [](World& host) {
    const auto world = make_nccl_world(host, kGpu);
    Arena memory(kGpu, world->allocate(1 << 16), 1 << 16);
    const auto pair = world->connect({"weights", {0, 1}, Carries::tensors});
    Stream stream(kGpu, "test");
    const auto gather = [&] {
      pair->all_gather(memory.allocate("all", DType::fp32, {8}),
                       memory.allocate("mine", DType::fp32, {4}), stream);
    };
    gather();
    if (host.rank() == 1) memory.allocate("rank 1 alone has it", DType::fp32, {1});
    gather();
  });
  expect_contains(said, "receives into lies at another place of its memory than rank 0's");
}

TEST(NcclWorld, ranks_that_allocate_unequal_sizes_are_rejected) {
  const auto said =
      thrown(2, [](World& host) { make_nccl_world(host, kGpu)->allocate(1024 + host.rank()); });
  expect_contains(said, "a rank allocates 102");
}

TEST(NcclWorld, the_simulated_nccl_finds_a_call_that_no_event_orders) {
  const auto said = thrown(2, [](World& host) {
    const auto world = make_nccl_world(host, kGpu);
    const auto pair = world->connect({"pair", {0, 1}});
    Memory memory;
    Stream other(kGpu, "other");
    const auto a = memory.tensor(4), all = memory.tensor(8);
    memory.stream.copy(a, memory.tensor(4));
    pair->all_gather(all, a, other);
  });
  expect_contains(said, "reads what other work wrote, and nothing orders the two");
}

}  // namespace lockstep::nccl_test

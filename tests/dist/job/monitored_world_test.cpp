#include "dist/job/monitored_world.h"

#include <csignal>

#include "core/file.h"
#include "tests/dist/job.h"
#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing::watched_world_test {

// Sends beats and queries progress all the time.
const MonitorOptions kBusy{
    .timing = {.interval = Milliseconds(1), .missed = 20'000, .stall = Milliseconds(0)}};

TEST(MonitoredWorld, forwards_to_the_world_that_it_watches) {
  run_thread_ranks(3, [](World& world) {
    MonitoredWorld watched(world, kBusy);
    EXPECT_EQ(watched.rank(), world.rank());
    EXPECT_EQ(watched.size(), 3);
    EXPECT_EQ(watched.exchange(std::to_string(world.rank())),
              (std::vector<std::string>{"0", "1", "2"}));
  });
}

// Communicators write into the ring while the watch reads it.
TEST(MonitoredWorld, records_the_collectives_of_its_groups) {
  run_thread_ranks(4, [](World& world) {
    MonitoredWorld watched(world, kBusy);
    auto comms = make_comms(watched, Mesh{.shard = 2, .tensor = 2});
    Bench bench{.threads = 1, .host_bytes = std::int64_t{1} << 20};
    Stream queued(Device{}, "gathers", Stream::Mode::queued);
    const auto x = bench.poisoned({4}, DType::fp32), y = bench.poisoned({8}, DType::fp32),
               z = bench.poisoned({4}, DType::fp32);
    for (int step = 1; step <= 200; ++step) {
      watched.ring()->begin_step(step);
      comms.gathers->all_gather(y, x, queued);
      comms.tensor->all_reduce(z, ReduceOp::sum, bench.stream);
      queued.synchronize();
    }
    const auto now = watched.ring()->activity();
    EXPECT_EQ(now.step, 200);
    EXPECT_EQ(now.collectives, 400u);
    EXPECT_FALSE(now.inside);
    expect_contains(watched.ring()->in_words(), "all_reduce  tensor");
    watched.ring()->forget_events();
  });
}

// Rank 0 only sees a connection break. All ranks end with the disk error of rank 1 and report it,
// and the last act receives it. The signal of mpirun does not interrupt the last act.
TEST(MonitoredWorldDeathTest, a_consequence_is_not_reported_before_its_cause) {
  const TemporaryDirectory run;
  const auto breaks = [&] {
    run_thread_ranks(2, [&](World& world) {
      MonitoredWorld watched(world,
                             {.timing = {.interval = Milliseconds(1000)}, .directory = run.path()});
      if (world.rank() == 0) {
        watched.set_exit_handler([&](const std::string& why, int exit_code, const auto&) {
          std::raise(SIGTERM);
          spit(run / "last_act", str(exit_code, " ", why));
        });
        watched.abort("the connection to rank 1 is lost", TransientError("").exit_code());
      } else {
        std::this_thread::sleep_for(Milliseconds(100));
        watched.abort("the disk is full", 65);
      }
    });
  };
  EXPECT_EXIT(breaks(), ::testing::ExitedWithCode(65), "rank 1 .*the disk is full");
  expect_contains(read_text(run / "ended/rank-00000.txt", 100'000), "the disk is full");
  expect_contains(read_text(run / "last_act", 1000), "65 rank 1 ");
}

TEST(MonitoredWorldDeathTest, writes_nothing_into_a_directory_that_replaced_its_own) {
  const TemporaryDirectory parent;
  const auto run = parent / "run", moved = parent / "moved";
  std::filesystem::create_directory(run);
  const auto breaks = [&] {
    run_thread_ranks(2, [&](World& world) {
      MonitoredWorld watched(world, {.timing = {.interval = Milliseconds(1000)}, .directory = run});
      world.exchange("");
      if (world.rank() == 0) {
        std::filesystem::rename(run, moved);
        std::filesystem::create_directory(run);
      }
      world.exchange("");
      if (world.rank() == 1) watched.abort("the disk is full", 74);
      std::this_thread::sleep_for(std::chrono::seconds(30));
    });
  };
  EXPECT_EXIT(breaks(), ::testing::ExitedWithCode(74), "the disk is full");
  EXPECT_TRUE(std::filesystem::is_empty(run));
  EXPECT_FALSE(std::filesystem::is_empty(moved / "ended"));
}

}  // namespace lockstep::testing::watched_world_test

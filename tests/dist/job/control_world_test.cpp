#include "dist/job/control_world.h"

#include "tests/dist/job.h"
#include "tests/testing.h"

namespace lockstep::testing::control_world_test {

TEST(ControlWorld, carries_bytes_in_the_order_of_ranks) {
  const auto thrown = run_ranks(Job(3), [](Control& control) {
    const auto world = make_control_world(control, [](const std::string&, int) {});
    EXPECT_EQ(world->size(), 3);
    EXPECT_EQ(world->rank(), control.rank());
    const std::string zeros("\0\xff", 2);
    for (int i = 0; i < 3; ++i) {
      const auto said = world->exchange(str(world->rank(), " ", i, zeros));
      for (int r = 0; r < 3; ++r)
        EXPECT_EQ(said.at(static_cast<std::size_t>(r)), str(r, " ", i, zeros));
    }
    EXPECT_EQ(world->exchange(world->rank() == 0 ? "only one" : ""),
              (std::vector<std::string>{"only one", "", ""}));
  });
  EXPECT_EQ(thrown, std::vector<std::string>(3));
}

TEST(ControlWorld, carries_texts_larger_than_a_message) {
  const auto thrown = run_ranks(Job(2), [](Control& control) {
    const auto world = make_control_world(control, [](const std::string&, int) {});
    const std::string large(std::size_t{20} << 20, static_cast<char>('a' + world->rank()));
    const auto said = world->exchange(world->rank() == 0 ? large : "b");
    EXPECT_EQ(said[0].size(), large.size());
    EXPECT_EQ(said[0].find_first_not_of('a'), std::string::npos);
    EXPECT_EQ(said[1], "b");
  });
  EXPECT_EQ(thrown, std::vector<std::string>(2));
}

// Ranks meet at an address without a launcher, and leave.
TEST(AddressWorld, meets_at_an_address) {
  const Job job(3);
  const ReservedPort port;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const auto world = meet_at_address({.way = Rendezvous::Way::address,
                                          .rank = rank,
                                          .ranks = 3,
                                          .address = "127.0.0.1",
                                          .port = port.number(),
                                          .secret = job.secret});
      EXPECT_EQ(world->exchange(std::to_string(rank)), (std::vector<std::string>{"0", "1", "2"}));
    });
  for (auto& rank : ranks)
    rank.join();
}

TEST(ControlWorld, carries_no_tensors) {
  const auto thrown = run_ranks(Job(2), [](Control& control) {
    const auto world = make_control_world(control, [](const std::string&, int) {});
    world->connect({"tensor", {0, 1}});
  });
  for (const auto& text : thrown)
    expect_contains(text, "'tensor'");
}

TEST(ControlWorld, passes_on_the_reason_of_an_abort) {
  std::mutex mutex;
  std::vector<std::string> why;
  run_ranks(Job(2), [&](Control& control) {
    const auto world = make_control_world(control, [&](const std::string& text, int exit_code) {
      const std::lock_guard lock(mutex);
      why.push_back(str(text, " ", exit_code));
    });
    EXPECT_THROW(world->ends_all([&]() -> int {
      world->exchange("");
      throw DataError("a bad file");
    }),
                 DataError);
  });
  EXPECT_EQ(why, std::vector<std::string>(2, "a bad file 65"));
}

}  // namespace lockstep::testing::control_world_test

#include "dist/control_world.h"

#include "tests/dist/job.h"

namespace lockstep {
namespace {

using testing::Job;
using testing::run_ranks;

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

TEST(ControlWorld, carries_no_tensors) {
  const auto thrown = run_ranks(Job(2), [](Control& control) {
    const auto world = make_control_world(control, [](const std::string&, int) {});
    world->connect("tensor", {0, 1});
  });
  for (const auto& text : thrown)
    EXPECT_NE(text.find("the group 'tensor' need MPI"), std::string::npos) << text;
}

TEST(ControlWorld, says_why_it_aborts) {
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

}  // namespace
}  // namespace lockstep

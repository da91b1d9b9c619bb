// Requests to a live run, and what they leave in its history.
#include "train/run/requests.h"

#include <csignal>
#include <gtest/gtest.h>
#include <tuple>

#include "tests/files.h"
#include "train/run/run_context.h"

namespace lockstep::testing::requests_test {

class Requests : public ::testing::Test {
 protected:
  Requests() { std::filesystem::create_directory(run_ / "control"); }
  TemporaryDirectory run_;
  ControlDirectory directory_{run_.path()};
};

TEST_F(Requests, are_read_as_they_were_sent) {
  const auto number = directory_.send({.command = "set", .step = 7, .settings = {"a.b=1"}});
  EXPECT_EQ(number, 1);
  EXPECT_EQ(directory_.send({.command = "rollback", .step = 5, .skip = "6..7"}), 2);
  EXPECT_EQ(directory_.unanswered(), (std::vector<std::int64_t>{1, 2}));
  const auto request = directory_.read(1);
  EXPECT_EQ(in_words(request), "set a.b=1 --at 7");
  EXPECT_EQ(in_words(directory_.read(2)), "rollback 5 --skip 6..7");
  EXPECT_EQ(request.uid, geteuid());
  EXPECT_FALSE(request.user.empty());
}

TEST_F(Requests, are_answered_once_and_their_numbers_go_on) {
  directory_.send({.command = "save"});
  directory_.answer(directory_.read(1), {RequestState::done, "saved", 9}, 3);
  EXPECT_TRUE(directory_.unanswered().empty());
  const auto answer = directory_.answer_of(1);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->message, "saved");
  EXPECT_EQ(answer->step, 9);
  EXPECT_FALSE(directory_.answer_of(2));
  EXPECT_EQ(directory_.send({.command = "save"}), 2);
  directory_.withdraw(2);
  EXPECT_TRUE(directory_.unanswered().empty());
  directory_.begin_after(70);
  EXPECT_EQ(directory_.send({.command = "save"}), 71);
}

// The trail has each outcome; files of old requests go, so that the directory stays small.
TEST_F(Requests, leave_a_trail_and_few_files) {
  for (int i = 1; i <= 110; ++i) {
    directory_.send({.command = "pause"});
    directory_.answer(directory_.read(i), {RequestState::refused, "why", i}, 4);
  }
  std::ifstream log(directory_.log());
  std::string line;
  int lines = 0;
  for (; std::getline(log, line); ++lines) {
    const auto json = Json::parse(line, "log");
    EXPECT_EQ(json.at("request").at("number").as_integer(), lines + 1);
    EXPECT_EQ(json.at("outcome").as_string(), "refused");
    EXPECT_EQ(json.at("epoch").as_integer(), 4);
    EXPECT_EQ(json.at("step").as_integer(), lines + 1);
  }
  EXPECT_EQ(lines, 110);
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "000010.request"));
  EXPECT_TRUE(std::filesystem::exists(directory_.path() / "000011.answer"));
}

TEST_F(Requests, of_this_start_are_newer_than_its_lock) {
  directory_.send({.command = "save"});
  EXPECT_FALSE(directory_.is_of_this_start(1)) << "there is no lock";
  const auto lock = run_ / "lock";
  std::ofstream(lock) << "pid";
  const auto written = std::filesystem::last_write_time(directory_.path() / "000001.request");
  std::filesystem::last_write_time(lock, written + std::chrono::seconds(1));
  EXPECT_FALSE(directory_.is_of_this_start(1));
  std::filesystem::last_write_time(lock, written - std::chrono::seconds(1));
  EXPECT_TRUE(directory_.is_of_this_start(1));
  EXPECT_FALSE(directory_.is_of_this_start(2));
}

// The stop of any rank wins; otherwise ranks agree on the newest request, and on a save that is
// due.
TEST(RunSignal, is_a_stop_or_else_a_save_and_a_request) {
  const StopSignals none;
  RunPosition first, other;
  first.offered = kMostRequests;
  const auto agree = [](int a, int b) {
    RunPosition position;
    position.agreed(std::max(a, b));
    return std::tuple(position.stop, position.request, position.save_agreed);
  };
  using Agreed = std::tuple<int, std::int64_t, bool>;
  EXPECT_EQ(agree(first.signal(none, false), other.signal(none, false)),
            Agreed(0, kMostRequests, false));
  EXPECT_EQ(agree(first.signal(none, true), 0), Agreed(0, kMostRequests, true));
  EXPECT_EQ(agree(other.signal(none, true), 0), Agreed(0, 0, true));
  EXPECT_EQ(agree(0, 0), Agreed(0, 0, false));
  EXPECT_EQ(agree(first.signal(none, true), 75 << RunPosition::kStopShift), Agreed(75, 0, false));
  EXPECT_EQ(agree(255 << RunPosition::kStopShift, 0), Agreed(255, 0, false));
  std::raise(SIGTERM);
  EXPECT_EQ(agree(first.signal(none, true), 0), Agreed(75, 0, false));
}

}  // namespace lockstep::testing::requests_test

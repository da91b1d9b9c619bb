#include "dist/job/link.h"

#include <functional>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "core/error.h"
#include "dist/job/frame.h"
#include "tests/dist/words.h"

namespace lockstep::testing::link_test {

// The two ends of a link, in one thread.
class Links : public ::testing::TestWithParam<bool> {
 protected:
  Links() {
    std::array<int, 2> ends{};
    LOCKSTEP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0,
                   "no pair");
    const auto memory = SharedRings::create(kRing);
    for (int side = 0; side < 2; ++side)
      links_.emplace_back(
          Socket(ends[static_cast<std::size_t>(side)], "the other one"),
          GetParam() ? std::make_unique<SharedRings>(memory, kRing, side) : nullptr);
  }
  void run_until_idle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& link : links_)
        moved |= link.progress();
    }
    for (auto& link : links_)
      EXPECT_TRUE(link.is_idle());
  }
  static constexpr std::size_t kRing = 4096;
  std::deque<Link> links_;
};

TEST_P(Links, transfers_of_a_lane_arrive_in_order_and_lanes_pass_each_other) {
  const auto large = Bytes(100'000, std::byte{7});
  const auto one = as_bytes("one"), two = as_bytes("two more"), none = Bytes();
  Bytes got_large(large.size()), got_one(one.size()), got_two(two.size()), got_none;
  links_[0].send(Link::parts, large);
  links_[0].send(Link::messages, one);
  links_[0].send(Link::messages, none);
  links_[0].send(Link::messages, two);
  links_[1].receive(Link::messages, got_one);  // behind the part, which has no receive() yet
  for (int i = 0; i < 1000 && !links_[1].is_idle(Link::messages); ++i)
    for (auto& link : links_)
      link.progress();
  EXPECT_EQ(as_text(got_one), "one");
  links_[1].receive(Link::messages, got_none);
  links_[1].receive(Link::parts, got_large);
  links_[1].receive(Link::messages, got_two);
  links_[1].send(Link::parts, one);
  links_[0].receive(Link::parts, got_one);
  run_until_idle();
  EXPECT_EQ(got_large, large);
  EXPECT_EQ(as_text(got_two), "two more");
}

TEST_P(Links, another_size_than_expected_is_an_error) {
  const auto sent = as_bytes("four");
  Bytes got(5);
  links_[0].send(Link::parts, sent);
  links_[1].receive(Link::parts, got);
  EXPECT_THROW(run_until_idle(), Error);
}

TEST_P(Links, a_part_that_came_early_with_another_size_is_an_error) {
  const auto part = as_bytes("part"), message = as_bytes("message");
  Bytes got(message.size()), other(5);
  links_[0].send(Link::parts, part);
  links_[0].send(Link::messages, message);
  links_[1].receive(Link::messages, got);
  run_until_idle();
  EXPECT_THROW(links_[1].receive(Link::parts, other), Error);
}

TEST_P(Links, what_was_sent_before_the_end_arrives_and_then_the_end_is_an_error) {
  const auto sent = as_bytes("last");
  Bytes got(4), more(1);
  links_[0].send(Link::parts, sent);
  links_[0].progress();
  links_.pop_front();
  links_[0].receive(Link::parts, got);
  links_[0].receive(Link::parts, more);
  const auto reads_to_the_end = [&] {
    for (int i = 0; i < 10; ++i) {
      auto polled = links_[0].announce_sleep();
      if (!links_[0].progress()) poll(&polled, 1, 1000);
      links_[0].wake_up(polled);
    }
  };
  EXPECT_THROW(reads_to_the_end(), TransientError);
  EXPECT_EQ(as_text(got), "last");
}

TEST(Link, bytes_that_are_no_transfer_are_an_error) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  Link link(Socket(ends[0], "the other one"));
  Socket other(ends[1], "this one");
  other.send_all(as_bytes("GET / HTTP/1.1\r\n"), Clock::now() + Milliseconds(1000));
  Bytes got(4);
  link.receive(Link::parts, got);
  EXPECT_THROW(link.progress(), DataError);
}

INSTANTIATE_TEST_SUITE_P(all, Links, ::testing::Bool(), [](const auto& shares_memory) {
  return shares_memory.param ? "shared_memory" : "socket";
});

}  // namespace lockstep::testing::link_test

// A rank that waits for one other, and who else comes.
#include "dist/handshake.h"

#include <future>

#include "tests/dist/words.h"

namespace lockstep::testing::handshake_test {

constexpr Milliseconds kEnough{20'000};

class AwaitRank : public ::testing::Test {
 protected:
  Deadline soon() const { return Clock::now() + kEnough; }
  Socket connect() const { return connect_to("127.0.0.1", listener_.port(), soon()); }
  Socket come(int rank, Channel channel, const Secret& secret) const {
    return join({.rank = rank,
                 .ranks = 8,
                 .addresses = {"127.0.0.1"},
                 .port = listener_.port(),
                 .secret = secret,
                 .listener = 5},
                channel, soon());
  }
  Socket listener_ = listen_at("127.0.0.1", 0);
  Secret secret_ = Secret::draw();
};

TEST_F(AwaitRank, takes_the_one_it_waits_for_and_closes_all_others) {
  auto awaited = std::async(std::launch::async, [&] {
    return await_rank(listener_, secret_, Channel::files, 3, soon());
  });
  connect().send_all(as_bytes("GET / HTTP/1.1"), soon());
  { const Socket silent = connect(); }  // and gone
  expect_refusal_here<ConfigError>("dist/handshake", "another secret", {"rank 3", "rank 5"},
                                   [&] { come(3, Channel::files, Secret::draw()); });
  std::vector<Socket> others;
  others.push_back(come(2, Channel::files, secret_));
  others.push_back(come(3, Channel::control, secret_));
  Socket right = come(3, Channel::files, secret_);
  Socket here = awaited.get();
  right.send_all(as_bytes("files"), soon());
  Bytes got(5);
  here.receive_all(got, soon());
  EXPECT_EQ(as_text(got), "files");
  for (auto& other : others)
    EXPECT_EQ(other.receive_some(got, soon()), 0u);
}

TEST_F(AwaitRank, says_who_did_not_come_and_who_came) {
  const auto nobody = [&] {
    await_rank(listener_, secret_, Channel::files, 3, Clock::now() + Milliseconds(50));
  };
  expect_refusal_here<TransientError>("dist/handshake", "nobody", {"rank 3"}, nobody);
  connect().send_all(as_bytes("GET / HTTP/1.1"), soon());
  expect_refusal_here<TransientError>("dist/handshake", "a stranger", {"rank 3", "127.0.0.1:"},
                                      nobody);
}

}  // namespace lockstep::testing::handshake_test

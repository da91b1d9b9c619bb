// A rank that waits for one other, and who else comes.
#include "dist/job/handshake.h"

#include <array>
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

// Between a rank and a session a bit of the introduction is changed: of rank, ranks and host, then
// of channel and pid, and of the proof itself. After three connections the rank gives up.
TEST_F(AwaitRank, an_introduction_that_was_changed_on_the_way_proves_nothing) {
  constexpr std::size_t kHelloBytes = 44, kProofBytes = 112;
  for (const auto& changed : {std::array<std::size_t, 3>{4, 8, 16}, {0, 12, 80}}) {
    auto coming = std::async(std::launch::async, [&] {
      return testing::message_of<ConfigError>([&] { come(3, Channel::files, secret_); });
    });
    for (const auto byte : changed) {
      ASSERT_TRUE(wait_for(listener_, false, soon()));
      auto socket = accept_from(listener_);
      ASSERT_TRUE(socket);
      Session session(secret_, random_bytes());
      Bytes hello(kHelloBytes), challenge, proof(kProofBytes), answer;
      socket->receive_all(hello, soon());
      session.take(hello, challenge);
      socket->send_all(challenge, soon());
      socket->receive_all(proof, soon());
      proof[byte] ^= std::byte{1};
      EXPECT_THROW(session.take(proof, answer), DataError) << byte;
      EXPECT_FALSE(session.authenticated());
    }
    testing::expect_contains(coming.get(), "rank 3 cannot reach rank 5: ");
  }
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

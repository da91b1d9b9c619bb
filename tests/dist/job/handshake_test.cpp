// A rank waits for other ranks while other clients connect.
#include "dist/job/handshake.h"

#include <array>
#include <future>

#include "tests/dist/words.h"

namespace lockstep::testing::handshake_test {

constexpr Milliseconds kEnough{20'000};

class AwaitRanks : public ::testing::Test {
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

TEST_F(AwaitRanks, accepts_its_rank_and_closes_all_others) {
  auto awaited = std::async(std::launch::async, [&] {
    return std::move(await_ranks(listener_, secret_, Channel::files, {3}, soon()).front());
  });
  connect().send_all(as_bytes("GET / HTTP/1.1"), soon());
  { const Socket silent = connect(); }  // closed at once
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

// A bit of the introduction is changed on the way: in rank, ranks and host, then in channel and
// pid, and in the proof. After three rejections the rank fails.
TEST_F(AwaitRanks, a_modified_introduction_is_rejected) {
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

TEST_F(AwaitRanks, names_the_missing_rank_and_the_rejected_client) {
  const auto await_rank_3 = [&] {
    await_ranks(listener_, secret_, Channel::files, {3}, Clock::now() + Milliseconds(50));
  };
  expect_refusal_here<TransientError>("dist/handshake", "no client", {"rank 3"}, await_rank_3);
  connect().send_all(as_bytes("GET / HTTP/1.1"), soon());
  expect_refusal_here<TransientError>("dist/handshake", "a client of another protocol",
                                      {"rank 3", "127.0.0.1:"}, await_rank_3);
}

}  // namespace lockstep::testing::handshake_test

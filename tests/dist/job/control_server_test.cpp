// Unauthenticated clients, and ranks that break the protocol, do no harm at rank 0's port.
#include "dist/job/control_server.h"

#include <algorithm>
#include <atomic>
#include <deque>

#include "core/philox.h"
#include "dist/job/heartbeat.h"
#include "tests/dist/job.h"
#include "tests/dist/words.h"

namespace lockstep::testing::hub_test {

constexpr Milliseconds kEnough{20'000};

// Begin of a handshake that any program can send.
Bytes hello() {
  Bytes bytes = as_bytes("LOCKSTEP");
  const auto version = BodyWriter().number(std::uint32_t{2}).take();
  bytes.insert(bytes.end(), version.begin(), version.end());
  bytes.resize(44);
  return bytes;
}

const Bytes kHello = hello();

class ControlServerClients : public ::testing::Test {
 protected:
  ControlServerClients() {
    auto options = job_.options();
    options.handshake = Milliseconds(300);
    server_.emplace(options);
  }
  Socket client() const { return connect_to("127.0.0.1", server_->port(), Clock::now() + kEnough); }
  // The bytes until the control server closes it.
  static Bytes answer(Socket& socket) {
    const auto deadline = Clock::now() + kEnough;
    Bytes all, bytes(4096);
    try {
      while (const auto n = socket.receive_some(bytes, deadline))
        all.insert(all.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    } catch (const TransientError&) {
      EXPECT_LT(Clock::now(), deadline) << "it was not closed in time";
    }
    return all;
  }
  void expect_ranks_can_work() const {
    const auto before = Clock::now();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < job_.ranks; ++rank)
      threads.emplace_back([&, rank] {
        Control control(job_.membership(rank, server_->port()));
        control.barrier("b", kEnough);
      });
    for (auto& thread : threads)
      thread.join();
    EXPECT_LT(Clock::now() - before, Milliseconds(5000));
  }
  // A connection of rank 0 of a job, which may then break the protocol.
  Socket member(const Secret& secret) const {
    auto membership = job_.membership(0, server_->port());
    membership.secret = secret;
    return join(membership, Channel::control, Clock::now() + kEnough);
  }

  // Connects ranks 1 and 2, and rank 0 as a connection of which the test reads the bytes.
  Socket connect_with(std::vector<std::unique_ptr<Control>>& others) const {
    std::vector<std::thread> threads;
    for (const int rank : {1, 2})
      threads.emplace_back([&, rank] {
        others[static_cast<std::size_t>(rank)] =
            std::make_unique<Control>(job_.membership(rank, server_->port()));
      });
    Socket zero = member(job_.secret);
    for (auto& thread : threads)
      thread.join();
    return zero;
  }

  Job job_{3};
  std::optional<ControlServer> server_;
};

TEST_F(ControlServerClients, with_random_bytes_get_no_answer) {
  for (std::uint64_t i = 0; i < 20; ++i) {
    Socket socket = client();
    Bytes bytes(1 + philox(1, 2, i)[0] % 5000);
    for (std::size_t k = 0; k < bytes.size(); ++k)
      bytes[k] = static_cast<std::byte>(philox(1, i, k)[0]);
    socket.send_all(bytes, Clock::now() + kEnough);
    EXPECT_TRUE(answer(socket).empty());
  }
  expect_ranks_can_work();
}

TEST_F(ControlServerClients, of_other_protocols_are_closed_before_they_end_a_line) {
  const auto before = Clock::now();
  Socket socket = client();
  socket.send_all(as_bytes("GET"), before + kEnough);
  EXPECT_TRUE(answer(socket).empty());
  expect_ranks_can_work();
}

TEST_F(ControlServerClients, without_the_secret_get_only_a_random_number) {
  Socket socket = client();
  socket.send_all(kHello, Clock::now() + kEnough);
  Bytes32 challenge;
  socket.receive_all(challenge, Clock::now() + kEnough);
  socket.send_all(Bytes(112), Clock::now() + kEnough);
  EXPECT_TRUE(answer(socket).empty());
  EXPECT_THROW(member(Secret::draw()), ConfigError);
  expect_ranks_can_work();
}

TEST_F(ControlServerClients, cannot_replay_a_proof) {
  // An attacker between a rank and the control server records the rank's bytes and sends them
  // again.
  Socket listener = listen_at("127.0.0.1", 0);
  auto membership = job_.membership(0, listener.port());
  membership.start = Milliseconds(1000);
  std::thread rank([&] {
    try {
      join(membership, Channel::control, Clock::now() + membership.start);
    } catch (const Error&) {
    }
  });
  ASSERT_TRUE(wait_for(listener, false, Clock::now() + kEnough));
  Socket heard = *accept_from(listener);
  Socket real = client();
  Bytes first(44), challenge(32), proof(112), accepted(32);
  const auto deadline = Clock::now() + kEnough;
  heard.receive_all(first, deadline);
  real.send_all(first, deadline);
  real.receive_all(challenge, deadline);
  heard.send_all(challenge, deadline);
  heard.receive_all(proof, deadline);
  real.send_all(proof, deadline);
  real.receive_all(accepted, deadline);  // so the proof is valid
  real.shut();
  heard.shut();
  listener.shut();

  Socket again = client();
  again.send_all(first, deadline);
  again.receive_all(challenge, deadline);
  again.send_all(proof, deadline);
  EXPECT_TRUE(answer(again).empty());
  rank.join();
}

TEST_F(ControlServerClients, that_pose_as_rank_0_are_detected) {
  Socket listener = listen_at("127.0.0.1", 0);
  std::thread impostor([&] {
    for (int i = 0; i < 3; ++i) {
      if (!wait_for(listener, false, Clock::now() + kEnough)) return;
      auto socket = accept_from(listener);
      Bytes bytes(112);
      socket->receive_all(std::span(bytes).first(44), Clock::now() + kEnough);
      socket->send_all(Bytes(32), Clock::now() + kEnough);
      socket->receive_all(bytes, Clock::now() + kEnough);
      socket->send_all(Bytes(32), Clock::now() + kEnough);
    }
  });
  expect_refusal_here<ConfigError>("dist/control_server", "an impostor", {"rank 0"}, [&] {
    join(job_.membership(1, listener.port()), Channel::control, Clock::now() + kEnough);
  });
  impostor.join();
}

TEST_F(ControlServerClients, that_send_nothing_or_little_are_closed_in_time) {
  std::vector<Socket> sockets;
  for (int i = 0; i < 5; ++i)
    sockets.push_back(client());
  sockets[1].send_all(std::span(kHello).first(1), Clock::now() + kEnough);
  sockets[2].send_all(std::span(kHello).first(43), Clock::now() + kEnough);
  sockets[3].send_all(kHello, Clock::now() + kEnough);
  for (int i = 0; i < 12; ++i) {  // a byte from time to time
    sockets[4].try_send(std::span(kHello).subspan(static_cast<std::size_t>(i), 1));
    std::this_thread::sleep_for(Milliseconds(20));
  }
  expect_ranks_can_work();
  for (std::size_t i = 0; i < sockets.size(); ++i)
    EXPECT_EQ(answer(sockets[i]).size(), i == 3 ? 32u : 0u) << i;
}

TEST_F(ControlServerClients, in_any_number_do_not_block_ranks) {
  auto options = job_.options();  // with a long time to authenticate
  options.handshake = Milliseconds(60'000);
  server_.emplace(options);
  std::vector<Socket> sockets;
  for (int i = 0; i < 1200; ++i)
    sockets.push_back(client());
  expect_ranks_can_work();
  // The oldest were closed in favour of newer ones.
  EXPECT_TRUE(answer(sockets.front()).empty());
  Bytes byte(1);
  EXPECT_EQ(sockets.back().try_receive(byte), std::optional<std::size_t>(0));
}

// The server accepts again as soon as a place is free, and it keeps its times meanwhile.
TEST_F(ControlServerClients, that_come_all_the_time_do_not_block_ranks) {
  auto options = job_.options();
  options.handshake = Milliseconds(60'000);
  server_.emplace(options);
  std::atomic<bool> is_over = false;
  std::thread flood([&] {
    std::deque<Socket> sockets;
    while (!is_over) {
      sockets.push_back(client());
      if (sockets.size() > 1500) sockets.pop_front();
    }
  });
  std::vector<std::thread> ranks;
  std::atomic<int> ended = 0;
  for (int rank = 0; rank < job_.ranks; ++rank)
    ranks.emplace_back([&, rank] {
      std::this_thread::sleep_for(Milliseconds(300 * rank));
      Control control(job_.membership(rank, server_->port()));
      control.barrier("met", kEnough);
      Heartbeat heart(
          job_.membership(rank, server_->port()), kFast, [] { return Activity(); },
          [&](const Verdict& verdict) { ADD_FAILURE() << verdict.text; });
      std::this_thread::sleep_for(2 * kFast.missed * kFast.interval);
      control.barrier("beats", kEnough);
      heart.goodbye();
      ++ended;
    });
  for (auto& rank : ranks)
    rank.join();
  EXPECT_EQ(ended, job_.ranks);
  is_over = true;
  flood.join();
}

// More clients than places, that all are honest: none is closed before it was answered.
TEST_F(ControlServerClients, that_come_at_once_are_all_answered) {
  auto options = job_.options();
  options.handshake = Milliseconds(60'000);
  server_.emplace(options);
  std::vector<Socket> sockets;
  for (int i = 0; i < 1200; ++i) {
    sockets.push_back(client());
    sockets.back().send_all(kHello, Clock::now() + kEnough);
  }
  for (auto& socket : sockets) {
    Bytes32 challenge;
    ASSERT_NO_THROW(socket.receive_all(challenge, Clock::now() + kEnough));
  }
}

TEST_F(ControlServerClients, that_close_in_the_middle_leave_nothing) {
  for (const std::size_t n : {0u, 1u, 20u, 44u}) {
    Socket socket = client();
    socket.send_all(std::span(kHello).first(n), Clock::now() + kEnough);
  }
  expect_ranks_can_work();
}

TEST_F(ControlServerClients, deliver_nothing_of_half_a_frame) {
  std::vector<std::unique_ptr<Control>> others(3);
  Socket zero = connect_with(others);
  Bytes frame;
  append(frame, {FrameKind::message, 1, "half", Bytes(100)});
  zero.send_all(std::span(frame).first(50), Clock::now() + kEnough);
  zero.finish_sending();
  expect_refusal_here<TransientError>("dist/control_server", "half a frame", {"'half'", "rank 0"},
                                      [&] { others[1]->receive(0, "half", kEnough); });
  others[1]->send(2, "x", as_bytes("alive"));
  EXPECT_EQ(as_text(others[2]->receive(1, "x", kEnough)), "alive");
}

// Messages that wait for a rank that does not read arrive in order, and survive their sender.
TEST_F(ControlServerClients, that_do_not_read_hold_back_only_those_who_send_to_them) {
  std::vector<std::unique_ptr<Control>> others(3);
  Socket zero = connect_with(others);
  constexpr int kMessages = 100;  // 100 MiB: more than the server keeps for a rank
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i)
      others[1]->send(0, "many", Bytes(std::size_t{1} << 20, static_cast<std::byte>(i)));
    others[1]->send(kEveryRank, "all", as_bytes("last"));
    others[1].reset();
  });
  std::this_thread::sleep_for(Milliseconds(300));
  others[2]->send(2, "x", as_bytes("alive"));
  EXPECT_EQ(as_text(others[2]->receive(2, "x", kEnough)), "alive");
  FrameReader reader;
  Bytes bytes(kPieceBytes);
  int next = 0;
  bool has_left = false;
  while (!has_left) {
    const auto count = zero.receive_some(bytes, Clock::now() + kEnough);
    ASSERT_GT(count, 0u);
    reader.add(std::span(bytes).first(count));
    while (const auto frame = reader.next()) {
      has_left |= frame->kind == FrameKind::gone;
      if (frame->kind != FrameKind::message || frame->tag != "many") continue;
      ASSERT_EQ(frame->body.at(12345), static_cast<std::byte>(next++));
    }
  }
  EXPECT_EQ(next, kMessages) << "a message arrived after its sender was reported gone";
  sender.join();
  EXPECT_EQ(as_text(others[2]->receive(1, "all", kEnough)), "last");
}

TEST_F(ControlServerClients, with_the_secret_are_closed_after_a_wrong_frame) {
  const auto head = [](std::uint32_t kind, std::int32_t peer, std::uint32_t tag,
                       std::uint32_t body) {
    return BodyWriter().number(kind).number(peer).number(tag).number(body).take();
  };
  for (const auto& wrong :
       {head(1, 0, 0, 0xffffffff), head(1, 0, 65, 0), head(99, 0, 0, 0), head(1, 0, 0, 0),
        head(5, 0, 0, 0)}) {  // the last two are not allowed at this time or on this channel
    Socket socket = member(job_.secret);
    socket.send_all(wrong, Clock::now() + kEnough);
    EXPECT_TRUE(answer(socket).empty());
  }
  expect_ranks_can_work();
}

TEST_F(ControlServerClients, of_another_job_get_the_reason) {
  const auto refused = [&](int rank, int ranks, std::initializer_list<std::string> pins) {
    auto membership = job_.membership(rank, server_->port());
    membership.ranks = ranks;
    expect_refusal_here<ConfigError>("dist/control_server", str("rank ", rank, " of ", ranks), pins,
                                     [&] { const Control control(membership); });
  };
  refused(1, 4, {"rank 1 of 4", "3"});
  refused(3, 3, {"rank 3"});
  refused(-1, 3, {"rank -1"});
  Socket first = member(job_.secret);
  refused(0, 3, {"rank 0"});
  first = Socket();
  expect_ranks_can_work();
}

TEST(ControlServer, reports_that_its_port_is_taken) {
  const Job job(1);
  const ControlServer server(job.options());
  auto options = job.options();
  options.port = server.port();
  expect_refusal_here<TransientError>("dist/control_server", "a port that is taken",
                                      {str("127.0.0.1:", server.port()), "MASTER_PORT"},
                                      [&] { const ControlServer second(options); });
}

}  // namespace lockstep::testing::hub_test

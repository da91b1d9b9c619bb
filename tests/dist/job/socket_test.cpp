#include "dist/job/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <thread>

#include "core/file.h"
#include "core/system/interfaces.h"
#include "dist/job/frame.h"
#include "tests/dist/job.h"
#include "tests/dist/words.h"
#include "tests/files.h"

namespace lockstep::testing::socket_test {

Deadline in(int milliseconds) {
  return Clock::now() + Milliseconds(milliseconds);
}

struct Pair {
  explicit Pair(const std::string& address = "127.0.0.1")
      : listener(listen_at(address, 0)), client(connect_to(address, listener.port(), in(5000))) {
    wait_for(listener, false, in(5000));
    server = std::move(*accept_from(listener));
  }
  Socket listener, client, server;
};

TEST(Socket, carries_all_bytes_both_ways) {
  Pair pair;
  std::vector<std::byte> out(10 << 20), in_bytes(out.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(i * 7 >> 3);
  std::thread sender([&] { pair.client.send_all(out, in(20'000)); });
  pair.server.receive_all(in_bytes, in(20'000));
  sender.join();
  EXPECT_EQ(in_bytes, out);
  pair.server.send_all(std::span(out).first(3), in(1000));
  EXPECT_EQ(pair.client.receive_some(in_bytes, in(1000)), 3u);
}

TEST(Socket, works_with_ipv6) {
  try {
    listen_at("::1", 0);
  } catch (const TransientError&) {
    GTEST_SKIP() << "SKIPPED: no IPv6 on this machine";
  }
  Pair pair("::1");
  pair.client.send_all(std::vector<std::byte>(3), in(1000));
  std::vector<std::byte> bytes(3);
  pair.server.receive_all(bytes, in(1000));
  EXPECT_EQ(pair.client.peer(), str("[::1]:", pair.listener.port()));
}

TEST(Socket, that_listens_everywhere_accepts_at_each_address) {
  const Socket listener = listen_at("", 0);
  for (const auto& address : local_addresses())
    EXPECT_TRUE(connect_to(address, listener.port(), in(5000))) << address;
  EXPECT_TRUE(connect_to("127.0.0.1", listener.port(), in(5000)));
}

TEST(Socket, fails_at_the_deadline) {
  Pair pair;
  std::vector<std::byte> bytes(64 << 20);
  const auto before = Clock::now();
  EXPECT_THROW(pair.client.receive_all(std::span(bytes).first(1), in(50)), TransientError);
  EXPECT_THROW(pair.client.send_all(bytes, in(50)), TransientError);
  EXPECT_GE(Clock::now() - before, Milliseconds(100));
  EXPECT_LT(Clock::now() - before, Milliseconds(5000));
}

TEST(Socket, names_the_other_end_when_it_is_gone) {
  Pair pair;
  pair.server = Socket();
  std::vector<std::byte> bytes(8);
  expect_refusal_here<TransientError>("dist/socket", "the other end is gone",
                                      {str("127.0.0.1:", pair.listener.port())},
                                      [&] { pair.client.receive_all(bytes, in(5000)); });
  // Writing raises no SIGPIPE, which would end this process.
  EXPECT_THROW(
      for (int i = 0; i < 1000; ++i) {
        pair.client.send_all(bytes, in(5000));
        std::this_thread::sleep_for(Milliseconds(1));
      },
      TransientError);
}

TEST(Socket, sends_bytes_of_a_file) {
  const TemporaryDirectory folder;
  constexpr std::size_t kBytes = 3 << 20, kOffset = 12'345;
  std::string text;
  for (std::size_t i = 0; i < kBytes; ++i)
    text += static_cast<char>(i * i >> 3);
  write_text(folder.path() / "file", text);
  const ReadFile file(folder.path() / "file");
  Pair pair;
  std::vector<std::byte> bytes(kBytes - kOffset);
  std::jthread sends([&] { pair.client.send_all(file, kOffset, bytes.size(), in(5000)); });
  pair.server.receive_all(bytes, in(5000));
  EXPECT_EQ(as_text(bytes), text.substr(kOffset));
  sends.join();
  EXPECT_THROW(pair.client.send_all(file, kBytes - 3, 4, in(5000)), DataError) << "it is shorter";
  pair.server = Socket();
  EXPECT_THROW(for (int i = 0; i < 1000; ++i) pair.client.send_all(file, 0, kBytes, in(5000)),
               TransientError);
}

TEST(Socket, is_not_inherited_by_programs) {
  const Pair pair;
  for (const auto* socket : {&pair.listener, &pair.client, &pair.server})
    EXPECT_NE(fcntl(socket->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Socket, names_the_wrong_host_or_port) {
  const ReservedPort port;
  expect_refusal_here<TransientError>("dist/socket", "no listener",
                                      {str("127.0.0.1:", port.number())},
                                      [&] { connect_to("127.0.0.1", port.number(), in(5000)); });
  expect_contains(message_of<TransientError>(
                      [&] { connect_to("no-such-host.invalid", port.number(), in(5000)); }),
                  "'no-such-host.invalid'");
}

TEST(SecondsText, has_one_decimal) {
  EXPECT_EQ(seconds_text(Milliseconds(5234)), "5.2 s");
  EXPECT_EQ(seconds_text(Milliseconds(60'000)), "60 s");
}

}  // namespace lockstep::testing::socket_test

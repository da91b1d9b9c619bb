#include "train/observe/metrics_server.h"

#include <fstream>
#include <gtest/gtest.h>
#include <list>
#include <thread>

#include "dist/job/socket.h"
#include "tests/wording.h"

namespace lockstep::testing::metrics_server_test {

constexpr auto kLong = std::chrono::seconds(60);

class MetricsServerTest : public ::testing::Test {
 protected:
  void SetUp() override { server_.set("lockstep_step{run=\"r\"} 7\n"); }

  Socket connect() const { return connect_to("127.0.0.1", server_.port(), Clock::now() + kLong); }
  static void say(Socket& socket, std::string_view text) {
    socket.send_all(std::as_bytes(std::span(text)), Clock::now() + kLong);
  }
  // Reads up to the end of the connection.
  static std::string hear(Socket& socket) {
    std::string text;
    std::array<std::byte, 4096> bytes;
    while (const auto n = socket.receive_some(bytes, Clock::now() + kLong))
      text.append(reinterpret_cast<const char*>(bytes.data()), n);
    return text;
  }
  std::string answer(std::string_view request) const {
    Socket socket = connect();
    say(socket, request);
    return hear(socket);
  }
  void expect_answers() const {
    expect_contains(answer("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "} 7\n");
  }

  MetricsServer server_{"127.0.0.1", 0};
};

TEST_F(MetricsServerTest, a_scrape_has_the_newest_text) {
  EXPECT_EQ(answer("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 25\r\nConnection: close\r\n\r\nlockstep_step{run=\"r\"} 7\n");
  server_.set("new\n");
  expect_contains(answer("GET /metrics?x=1 HTTP/1.0\n\n"), "\r\n\r\nnew\n");
  const auto head = answer("HEAD /metrics HTTP/1.1\r\n\r\n");
  expect_contains(head, "Content-Length: 4\r\n");
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST_F(MetricsServerTest, a_text_of_many_packets_arrives_complete) {
  const std::string text(std::size_t{8} << 20, 'x');
  server_.set(text);
  const auto said = answer("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(said.ends_with("\r\n\r\n" + text)) << said.size();
}

TEST_F(MetricsServerTest, other_requests_are_rejected) {
  EXPECT_TRUE(answer("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
  EXPECT_TRUE(answer("GET /metricsx HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
  const auto post = answer("POST /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(post.starts_with("HTTP/1.1 405 ")) << post;
  expect_contains(post, "Allow: GET, HEAD\r\n");
  for (const char* bad : {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", " \r\n\r\n",
                          "GET /metrics FTP/1\r\n\r\n", "\x16\x03\x01\n\n"})
    EXPECT_TRUE(answer(bad).starts_with("HTTP/1.1 400 ")) << bad;
  expect_answers();
}

TEST_F(MetricsServerTest, a_request_may_come_byte_by_byte) {
  Socket socket = connect();
  for (const char c : std::string_view("GET /metrics HTTP/1.1\r\n\r\n"))
    say(socket, std::string_view(&c, 1));
  expect_contains(hear(socket), "} 7\n");
}

TEST_F(MetricsServerTest, a_stalled_client_does_not_block_others_and_is_closed) {
  Socket silent = connect(), halting = connect();
  say(halting, "GET /metr");
  expect_answers();
  const auto begin = Clock::now();
  EXPECT_EQ(hear(silent), "");
  EXPECT_EQ(hear(halting), "");
  EXPECT_GT(Clock::now() - begin, std::chrono::seconds(2));  // after its time limit, not at once
}

TEST_F(MetricsServerTest, a_client_that_does_not_read_does_not_block_others) {
  server_.set(std::string(std::size_t{64} << 20, 'x'));
  Socket deaf = connect();
  say(deaf, "GET /metrics HTTP/1.1\r\n\r\n");
  server_.set("lockstep_step 7} 7\n");
  expect_answers();
}

TEST_F(MetricsServerTest, a_request_of_more_than_8_KiB_is_rejected) {
  EXPECT_TRUE(answer("GET /" + std::string(9000, 'a')).starts_with("HTTP/1.1 431 "));
}

TEST_F(MetricsServerTest, a_request_line_of_a_megabyte_is_rejected_before_its_end) {
  Socket socket = connect();
  std::size_t sent = 0;
  std::string said;
  try {
    say(socket, "GET /");
    const std::string line(1 << 20, 'a');
    for (; sent < line.size(); sent += 4096)
      say(socket, std::string_view(line).substr(sent, 4096));
    said = hear(socket);
    EXPECT_TRUE(said.empty() || said.starts_with("HTTP/1.1 431 ")) << said.substr(0, 100);
  } catch (const TransientError&) {  // closed with bytes unread: the answer may be lost
  }
  expect_answers();
}

TEST_F(MetricsServerTest, hundreds_of_connections_leave_room_for_the_next) {
  std::list<Socket> idle;
  for (int i = 0; i < 300; ++i)
    idle.push_back(connect());
  expect_answers();
  std::size_t open = 0;
  for (auto& socket : idle) {
    std::array<std::byte, 1> byte;
    try {
      open += socket.try_receive(byte) == 0u ? 1 : 0;
    } catch (const TransientError&) {
    }
  }
  EXPECT_LE(open, 32u);
}

TEST_F(MetricsServerTest, many_clients_at_once_are_all_answered) {
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&] {
      for (int n = 0; n < 25; ++n)
        answered += answer("GET /metrics HTTP/1.1\r\n\r\n").ends_with("} 7\n") ? 1 : 0;
    });
  for (auto& client : clients)
    client.join();
  EXPECT_EQ(answered, 200);
}

TEST_F(MetricsServerTest, an_address_in_use_is_an_error_that_names_the_key) {
  auto text =
      message_of<TransientError>([&] { const MetricsServer second("127.0.0.1", server_.port()); });
  const auto port = std::to_string(server_.port());
  for (const auto& pin : {"127.0.0.1:" + port, std::string("log.metrics_port")})
    expect_contains(text, pin);
  text.replace(text.find(port), port.size(), "PORT");
  expect_wording("train/metrics_server", "an address in use", text);
}

TEST_F(MetricsServerTest, it_ends_while_clients_wait) {
  Socket silent;
  {
    MetricsServer server("127.0.0.1", 0);
    silent = connect_to("127.0.0.1", server.port(), Clock::now() + kLong);
  }
  try {
    EXPECT_EQ(hear(silent), "");
  } catch (const TransientError&) {  // was not accepted yet
  }
}

}  // namespace lockstep::testing::metrics_server_test

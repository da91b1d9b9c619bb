#include "data/remote/shard_server.h"

#include <chrono>
#include <exception>
#include <future>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>

#include "core/progress.h"
#include "tests/data/distant.h"
#include "tests/no_threads.h"

namespace lockstep::testing::shard_server_test {

// The abstract socket of a server.
sockaddr_un address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return address;
}
socklen_t address_bytes(const std::string& name) {
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

class ShardServerTest : public ::testing::Test {
 protected:
  ShardServerTest() { write_numbered_shards(directory_.path(), 4); }
  HostShards files() const {
    return HostShards({directory_ / "cache", 1 << 24, 2, 0.2}, no_environment(), quick_patience());
  }
  std::string local(const std::string& name) const { return directory_ / name; }
  // A server whose clients wait for what a stalled far server does not send.
  HostShards impatient_files() const {
    return HostShards({directory_ / "cache", 1 << 24, 2, 0.2}, no_environment());
  }
  // A client that waits for a stalled shard, and throws an AccessError.
  static std::thread waiting_client(ShardClient& client, const BadServer& far) {
    std::thread waiting(
        [&client, url = far.url("stall/0.bin")] { EXPECT_THROW(client.open(url), AccessError); });
    wait_until([&] { return far.requests("stall/dataset.json") > 0; });
    return waiting;
  }
  static std::string text(const ReadFile& file) { return read_text(file, 1 << 24); }

  TemporaryDirectory directory_{fast_directory()};
};

TEST_F(ShardServerTest, many_ranks_share_one_open) {
  auto files = this->files();
  ShardServer server(files);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.emplace_back([&] {
      ShardClient client(server.name());
      for (int round = 0; round < 20; ++round)
        for (int shard = 0; shard < 4; ++shard) {
          const auto file = client.open(local(str(shard, ".bin")));
          EXPECT_EQ(text(file), slurp(local(str(shard, ".bin"))));
          EXPECT_EQ(file.path(), local(str(shard, ".bin")));
        }
    });
  for (auto& rank : ranks)
    rank.join();
  EXPECT_EQ(files.opened_local(), 4);
}

TEST_F(ShardServerTest, a_remote_shard_is_fetched_once_per_host) {
  BadServer far(directory_.path());
  auto files = this->files();
  ShardServer server(files);
  ShardClient one(server.name()), two(server.name());
  files.set_ahead(this, {far.url("plain/1.bin"), far.url("plain/2.bin")});
  std::thread other(
      [&] { EXPECT_EQ(text(two.open(far.url("plain/1.bin"))), slurp(local("1.bin"))); });
  EXPECT_EQ(text(one.open(far.url("plain/1.bin"))), slurp(local("1.bin")));
  EXPECT_EQ(text(one.open(far.url("plain/2.bin"))), slurp(local("2.bin")));
  other.join();
  EXPECT_EQ(far.requests("plain/1.bin"), 1);
  EXPECT_EQ(far.requests("plain/2.bin"), 1);
  EXPECT_EQ(far.requests("plain/dataset.json"), 1);
}

TEST_F(ShardServerTest, the_client_throws_the_error_of_the_server) {
  HostShards files({directory_ / "cache", 1 << 24, 2, 0.2}, no_environment(), no_patience());
  ShardServer server(files);
  ShardClient client(server.name());
  EXPECT_EQ(message_of<DataError>([&] { client.open(local("none")); }),
            message_of<DataError>([&] { files.open(local("none")); }));
  EXPECT_THROW(client.open("http://127.0.0.1:1/x/0.bin"), UnreachableError);
  files.set_ahead(this, {"http://127.0.0.1:1/x/0.bin"});  // a line of the log
  EXPECT_EQ(text(client.open(local("0.bin"))), slurp(local("0.bin")));
}

TEST_F(ShardServerTest, waiting_clients_get_progress_while_bytes_arrive) {
  const auto bytes = noise(12 << 20);
  spit(directory_ / "big.bin", bytes);
  auto manifest = write_numbered_shards(directory_.path(), 1);
  manifest.shards[0].file = "big.bin";
  manifest.shards[0].tokens = (std::ssize(bytes) - 1024) / 2;
  manifest.shards[0].hash = hash_hex(bytes);
  spit(directory_ / kManifestName, manifest.dump());
  BadServer far(directory_.path());
  // The server is another process: what counts here is the client's progress.
  ServerProcess server([&] { return this->files(); });
  ShardClient client(server.name());
  const auto before = progress_made();
  EXPECT_EQ(text(client.open(far.url("slow/big.bin"))), bytes);  // at 2 x 64 KiB in 10 ms
  EXPECT_GT(progress_made(), before);
  server.end();
  expect_refusal<UnreachableError>("data/shard_server", "a server that has ended", {local("0.bin")},
                                   [&] { client.open(local("0.bin")); });
}

TEST_F(ShardServerTest, killing_the_server_ends_the_wait_at_once) {
  BadServer far(directory_.path());
  ServerProcess server([&] { return impatient_files(); });
  ShardClient client(server.name());
  const auto start = std::chrono::steady_clock::now();
  auto waiting = waiting_client(client, far);
  server.end();
  waiting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_THROW(ShardClient{server.name()}, UnreachableError);
}

TEST_F(ShardServerTest, a_waiting_thread_does_not_block_others_and_ends_with_the_server) {
  BadServer far(directory_.path());
  auto files = impatient_files();
  auto server = std::make_unique<ShardServer>(files);
  ShardClient client(server->name());
  auto waiting = waiting_client(client, far);
  EXPECT_EQ(text(client.open(local("0.bin"))), slurp(local("0.bin")));
  server.reset();
  waiting.join();
}

TEST_F(ShardServerTest, a_stopped_client_does_not_wait) {
  BadServer far(directory_.path());
  auto files = impatient_files();
  ShardServer server(files);
  ShardClient client(server.name());
  auto waiting = waiting_client(client, far);
  client.stop();
  waiting.join();
  EXPECT_THROW(client.open(local("0.bin")), AccessError);
}

TEST_F(ShardServerTest, a_descriptor_beyond_the_limit_is_reported) {
  ServerProcess server([&] { return this->files(); });
  ShardClient client(server.name());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = dup(STDERR_FILENO);
  close(next);
  const rlimit full{static_cast<rlim_t>(next), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  std::exception_ptr error;  // UBSan needs a descriptor to look at it
  try {
    client.open(local("0.bin"));
  } catch (...) {
    error = std::current_exception();
  }
  setrlimit(RLIMIT_NOFILE, &limit);
  ASSERT_TRUE(error);
  expect_refusal<AccessError>("data/shard_server", "too many open files",
                              {local("0.bin"), "ulimit -n"},
                              [&] { std::rethrow_exception(error); });
  EXPECT_EQ(text(client.open(local("0.bin"))), slurp(local("0.bin")));
}

// A client that asks and does not read.
class Silent {
 public:
  explicit Silent(const std::string& name) : socket_(socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
    const auto address = address_of(name);
    LOCKSTEP_CHECK(connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address),
                           address_bytes(name)) == 0,
                   "no server listens");
  }
  // Until neither its own buffer nor the server's takes more: each answer repeats what was asked.
  void ask_too_much() const {
    const std::string request(60'000, 'x');
    for (int refused = 0; refused < 50;) {
      if (send(socket_.number(), request.data(), request.size(), MSG_DONTWAIT) < 0) {
        ++refused;
        usleep(10'000);
      } else {
        refused = 0;
      }
    }
  }

 private:
  Descriptor socket_;
};

TEST_F(ShardServerTest, a_client_that_does_not_read_blocks_no_others) {
  auto files = this->files();
  auto server = std::make_unique<ShardServer>(files);
  auto silent = std::make_unique<Silent>(server->name());
  silent->ask_too_much();
  auto other = std::async(std::launch::async, [&] {
    ShardClient client(server->name());
    return text(client.open(local("0.bin")));
  });
  EXPECT_EQ(other.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  silent.reset();  // which sets the server free, where it waits
  EXPECT_EQ(other.get(), slurp(local("0.bin")));
  const Silent to_the_end(server->name());
  to_the_end.ask_too_much();
  server.reset();
}

TEST_F(ShardServerTest, the_kind_of_error_is_preserved) {
  BadServer far(directory_.path());
  auto files = this->files();
  ShardServer server(files);
  ShardClient client(server.name());
  expect_remote_refusal<RefusedError>("data/shard_server", "forbidden", {"403"},
                                      [&] { client.open(far.url("forbidden/0.bin")); });
  expect_remote_refusal<DataError>("data/shard_server", "missing", {"404"},
                                   [&] { client.open(far.url("missing/0.bin")); });
}

TEST_F(ShardServerTest, a_client_without_a_thread_gets_an_error_and_can_retry) {
  auto files = this->files();
  ShardServer server(files);
  ShardClient client(server.name());
  {
    const NoThreads none;
    EXPECT_THROW(ShardClient(server.name()).open(local("0.bin")), AccessError);
  }
  ShardClient later(server.name());
  EXPECT_EQ(text(later.open(local("0.bin"))), slurp(local("0.bin")));
}

TEST_F(ShardServerTest, other_users_are_rejected) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  auto files = this->files();
  ShardServer server(files);
  ShardClient mine(server.name());
  std::string refused;
  {
    const AsNobody nobody;
    refused = message_of<AccessError>([&] { ShardClient{server.name()}; });
  }
  expect_wording("data/shard_server", "another user's server", refused);
  // And one that does not look at whose the server is, is not heard.
  const auto address = address_of(server.name());
  const auto request = local("0.bin");
  const auto child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::array<char, 100> reply{};
    const int other = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (setuid(65534) != 0 || connect(other, reinterpret_cast<const sockaddr*>(&address),
                                      address_bytes(server.name())) != 0)
      _exit(1);
    send(other, request.data(), request.size(), MSG_NOSIGNAL);
    _exit(recv(other, reply.data(), reply.size(), 0) <= 0 ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace lockstep::testing::shard_server_test

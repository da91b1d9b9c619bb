#include "data/shard_server.h"

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

namespace lockstep::shard_server_test {

using testing::BadServer;
using testing::expect_contains;
using testing::message_of;

class ShardServerTest : public ::testing::Test {
 protected:
  ShardServerTest() { testing::write_numbered_shards(directory_.path(), 4); }
  NodeFiles files() const {
    return NodeFiles({directory_ / "cache", 1 << 24, 2, 0.2}, testing::no_environment(),
                     testing::quick_patience());
  }
  std::string local(const std::string& name) const { return directory_ / name; }
  static std::string text(const ReadFile& file) { return read_text(file, 1 << 24); }

  testing::TemporaryDirectory directory_{testing::fast_directory()};
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
          EXPECT_EQ(text(file), testing::slurp(local(str(shard, ".bin"))));
          EXPECT_EQ(file.path(), local(str(shard, ".bin")));
        }
    });
  for (auto& rank : ranks)
    rank.join();
  EXPECT_EQ(files.opened_local(), 4);
}

TEST_F(ShardServerTest, a_distant_shard_is_fetched_once_a_machine) {
  BadServer far(directory_.path());
  auto files = this->files();
  ShardServer server(files);
  ShardClient one(server.name()), two(server.name());
  files.set_ahead(this, {far.url("plain/1.bin"), far.url("plain/2.bin")});
  std::thread other(
      [&] { EXPECT_EQ(text(two.open(far.url("plain/1.bin"))), testing::slurp(local("1.bin"))); });
  EXPECT_EQ(text(one.open(far.url("plain/1.bin"))), testing::slurp(local("1.bin")));
  EXPECT_EQ(text(one.open(far.url("plain/2.bin"))), testing::slurp(local("2.bin")));
  other.join();
  EXPECT_EQ(far.requests("plain/1.bin"), 1);
  EXPECT_EQ(far.requests("plain/2.bin"), 1);
  EXPECT_EQ(far.requests("plain/dataset.json"), 1);
}

TEST_F(ShardServerTest, what_the_server_meets_the_client_throws) {
  NodeFiles files({directory_ / "cache", 1 << 24, 2, 0.2}, testing::no_environment(),
                  testing::no_patience());
  ShardServer server(files);
  ShardClient client(server.name());
  EXPECT_EQ(message_of<DataError>([&] { client.open(local("none")); }),
            message_of<DataError>([&] { files.open(local("none")); }));
  expect_contains(message_of<UnreachableError>([&] { client.open("http://127.0.0.1:1/x/0.bin"); }),
                  "given up after");
  files.set_ahead(this, {"http://127.0.0.1:1/x/0.bin"});  // a line of the log
  EXPECT_EQ(text(client.open(local("0.bin"))), testing::slurp(local("0.bin")));
}

TEST_F(ShardServerTest, who_waits_makes_progress_while_bytes_come) {
  const auto bytes = testing::noise(12 << 20);
  testing::spit(directory_ / "big.bin", bytes);
  auto manifest = testing::write_numbered_shards(directory_.path(), 1);
  manifest.shards[0].file = "big.bin";
  manifest.shards[0].tokens = (std::ssize(bytes) - 1024) / 2;
  manifest.shards[0].hash = hash_hex(bytes);
  testing::spit(directory_ / kManifestName, manifest.dump());
  BadServer far(directory_.path());
  // The server is another process: what counts here is the client's progress.
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const auto child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto files = this->files();
    ShardServer server(files);
    if (write(ends[1], server.name().c_str(), 64) < 0) _exit(1);
    pause();
  }
  std::string name(64, '\0');
  ASSERT_EQ(read(ends[0], name.data(), name.size()), 64);
  name.resize(std::strlen(name.c_str()));
  ShardClient client(name);
  const auto before = progress_made();
  EXPECT_EQ(text(client.open(far.url("slow/big.bin"))), bytes);  // at 2 x 64 KiB in 10 ms
  EXPECT_GT(progress_made(), before);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  const auto error = message_of<AccessError>([&] { client.open(local("0.bin")); });
  expect_contains(error,
                  "the first rank of this machine, which opens shards for the others, does not "
                  "answer; has it ended?");
}

TEST_F(ShardServerTest, a_server_that_is_killed_ends_the_wait_at_once) {
  BadServer far(directory_.path());
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const auto child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    NodeFiles files({directory_ / "cache", 1 << 24, 2, 0.2}, testing::no_environment());
    ShardServer server(files);
    if (write(ends[1], server.name().c_str(), 64) < 0) _exit(1);
    pause();
  }
  std::string name(64, '\0');
  ASSERT_EQ(read(ends[0], name.data(), name.size()), 64);
  name.resize(std::strlen(name.c_str()));
  ShardClient client(name);
  std::thread killer([&] {
    while (far.requests("stall/dataset.json") == 0)
      usleep(10'000);
    kill(child, SIGKILL);
  });
  const auto start = std::chrono::steady_clock::now();
  expect_contains(message_of<AccessError>([&] { client.open(far.url("stall/0.bin")); }),
                  "has it ended?");
  killer.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  expect_contains(message_of<AccessError>([&] { ShardClient{name}; }), "cannot be reached");
}

TEST_F(ShardServerTest, ends_while_a_client_waits_for_what_does_not_come) {
  BadServer far(directory_.path());
  NodeFiles files({directory_ / "cache", 1 << 24, 2, 0.2}, testing::no_environment());
  auto server = std::make_unique<ShardServer>(files);
  ShardClient client(server->name());
  std::thread waiting([&] {
    EXPECT_NE(message_of<AccessError>([&] { client.open(far.url("stall/0.bin")); }), "");
  });
  while (far.requests("stall/dataset.json") == 0)
    usleep(10'000);
  server.reset();
  waiting.join();
}

TEST_F(ShardServerTest, who_waits_for_a_shard_keeps_no_other_thread_waiting) {
  BadServer far(directory_.path());
  NodeFiles files({directory_ / "cache", 1 << 24, 2, 0.2}, testing::no_environment());
  auto server = std::make_unique<ShardServer>(files);
  ShardClient client(server->name());
  std::thread waiting([&] {
    EXPECT_NE(message_of<AccessError>([&] { client.open(far.url("stall/0.bin")); }), "");
  });
  while (far.requests("stall/dataset.json") == 0)
    usleep(10'000);
  EXPECT_EQ(text(client.open(local("0.bin"))), testing::slurp(local("0.bin")));
  server.reset();  // ends the wait
  waiting.join();
}

TEST_F(ShardServerTest, a_descriptor_that_finds_no_place_is_said) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const auto child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto files = this->files();
    ShardServer server(files);
    if (write(ends[1], server.name().c_str(), 64) < 0) _exit(1);
    pause();
  }
  std::string name(64, '\0');
  ASSERT_EQ(read(ends[0], name.data(), name.size()), 64);
  name.resize(std::strlen(name.c_str()));
  ShardClient client(name);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int next = dup(ends[0]);
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
  EXPECT_EQ(message_of<AccessError>([&] { std::rethrow_exception(error); }),
            local("0.bin") +
                ": cannot open: Too many open files; raise the limit of open files (ulimit -n)");
  EXPECT_EQ(text(client.open(local("0.bin"))), testing::slurp(local("0.bin")));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ShardServerTest, a_client_that_is_stopped_does_not_wait) {
  BadServer far(directory_.path());
  NodeFiles files({directory_ / "cache", 1 << 24, 2, 0.2}, testing::no_environment());
  ShardServer server(files);
  ShardClient client(server.name());
  std::thread waiting([&] {
    EXPECT_NE(message_of<AccessError>([&] { client.open(far.url("stall/0.bin")); }), "");
  });
  while (far.requests("stall/dataset.json") == 0)
    usleep(10'000);
  client.stop();
  waiting.join();
  EXPECT_NE(message_of<AccessError>([&] { client.open(local("0.bin")); }), "");
}

// A client that asks and does not read.
class Silent {
 public:
  explicit Silent(const std::string& name) : socket_(socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto bytes = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    LOCKSTEP_CHECK(connect(socket_.number(), reinterpret_cast<const sockaddr*>(&address),
                           static_cast<socklen_t>(bytes)) == 0,
                   "nobody listens");
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

TEST_F(ShardServerTest, who_does_not_read_keeps_nobody_waiting) {
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
  EXPECT_EQ(other.get(), testing::slurp(local("0.bin")));
  const Silent to_the_end(server->name());
  to_the_end.ask_too_much();
  server.reset();
}

TEST_F(ShardServerTest, what_kind_of_error_it_was_comes_through) {
  BadServer far(directory_.path());
  auto files = this->files();
  ShardServer server(files);
  ShardClient client(server.name());
  expect_contains(message_of<RefusedError>([&] { client.open(far.url("forbidden/0.bin")); }),
                  "HTTP status 403");
  const auto missing = [&] {
    try {
      client.open(far.url("missing/0.bin"));
    } catch (const AccessError& error) {
      ADD_FAILURE() << error.what();
    }
  };
  expect_contains(message_of<DataError>(missing), "HTTP status 404");
}

TEST_F(ShardServerTest, who_cannot_be_given_a_thread_is_told_and_may_ask_again) {
  auto files = this->files();
  ShardServer server(files);
  ShardClient client(server.name());
  {
    const testing::NoThreads none;
    EXPECT_NE(message_of<AccessError>([&] {
                ShardClient late(server.name());
                late.open(local("0.bin"));
              }),
              "");
  }
  ShardClient later(server.name());
  EXPECT_EQ(text(later.open(local("0.bin"))), testing::slurp(local("0.bin")));
}

TEST_F(ShardServerTest, another_user_is_not_served) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  auto files = this->files();
  ShardServer server(files);
  ShardClient mine(server.name());
  {
    const testing::AsNobody nobody;
    expect_contains(message_of<AccessError>([&] { ShardClient{server.name()}; }), "another user's");
  }
  // And one that does not look at whose the server is, is not heard.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  server.name().copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto bytes = offsetof(sockaddr_un, sun_path) + 1 + server.name().size();
  const auto request = local("0.bin");
  const auto child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::array<char, 100> reply{};
    const int stranger = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (setuid(65534) != 0 || connect(stranger, reinterpret_cast<const sockaddr*>(&address),
                                      static_cast<socklen_t>(bytes)) != 0)
      _exit(1);
    send(stranger, request.data(), request.size(), MSG_NOSIGNAL);
    _exit(recv(stranger, reply.data(), reply.size(), 0) <= 0 ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace lockstep::shard_server_test

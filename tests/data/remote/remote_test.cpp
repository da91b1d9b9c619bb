#include "data/remote/remote.h"

#include <chrono>
#include <thread>

#include "tests/data/bad_server.h"

namespace lockstep::testing::remote_test {

constexpr std::int64_t kBytes = 300'000;

class RemoteTest : public ::testing::Test {
 protected:
  RemoteTest() {
    spit(directory_ / "a.bin", bytes_);
    spit(directory_ / "a.bin.new", noise(kBytes, 2));
    server_ = std::make_unique<BadServer>(directory_.path());
  }

  // Bytes [1000, 250000) by a way of the server.
  std::string read(const std::string& modes, bool may_skip = false,
                   const Patience& patience = quick_patience(), std::int64_t end = 250'000) {
    Remote remote(no_environment(), patience);
    RemoteReader reader(remote, stop_);
    std::string got;
    const bool done =
        reader.read(server_->url(modes + "/a.bin"), {1000, end}, kBytes, may_skip,
                    [&](std::span<const std::byte> bytes, std::int64_t offset) {
                      EXPECT_EQ(offset, 1000 + static_cast<std::int64_t>(got.size()));
                      got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                    });
    return done ? got : "ranges are ignored";
  }
  int requests(const std::string& modes) { return server_->requests(modes + "/a.bin"); }
  // The error of a way that never gets better.
  template <class E>
  void expect_error(const std::string& modes, const std::string& pin) {
    expect_remote_refusal<E>("data/remote", modes, {server_->url(modes + "/a.bin: "), pin},
                             [&] { read(modes, false, no_patience()); });
  }

  // Where the text is libcurl's.
  template <class E>
  void expect_type(const std::string& modes) {
    try {
      read(modes, false, no_patience());
      ADD_FAILURE() << modes << " is read";
    } catch (const E& error) {
      EXPECT_EQ(typeid(error), typeid(E)) << error.what();
    }
  }

  TemporaryDirectory directory_;
  std::string bytes_ = noise(kBytes);
  std::string part_ = bytes_.substr(1000, 249'000);
  std::unique_ptr<BadServer> server_;
  Remote remote_{no_environment(), quick_patience()};
  std::atomic<bool> stop_ = false;
};

TEST_F(RemoteTest, reads_a_range_with_one_request) {
  for (const char* modes : {"plain", "chunked", "elsewhere"}) {  // elsewhere: a redirect
    EXPECT_EQ(read(modes), part_) << modes;
    EXPECT_EQ(requests(modes), 1) << modes;
  }
}

TEST_F(RemoteTest, resumes_where_a_connection_was_cut) {
  EXPECT_EQ(read("cut3"), part_);
  const auto ranges = server_->ranges("cut3/a.bin");
  ASSERT_EQ(ranges.size(), 4u);
  std::int64_t at = 1000;  // each sends a third of what is left
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ(ranges[i], (ByteRange{at, 250'000})) << i;
    at += (250'000 - at) / 3;
  }
}

// libcurl measures over five seconds: only where few bytes came does it find a stall sooner.
TEST_F(RemoteTest, resumes_where_a_server_stalled) {
  EXPECT_EQ(read("stall1", false, little_patience(), 1600), part_.substr(0, 600));
  EXPECT_EQ(server_->ranges("stall1/a.bin").at(1), (ByteRange{1000 + 200, 1600}));
}

TEST_F(RemoteTest, retries_temporary_errors) {
  for (const char* modes :
       {"busy2", "error2", "many2", "drop2", "wrongrange2", "wrongsize2", "shortlength2"}) {
    EXPECT_EQ(read(modes), part_) << modes;
    EXPECT_EQ(requests(modes), 3) << modes;
  }
}

TEST_F(RemoteTest, a_wrong_length_never_returns_a_byte_twice) {
  EXPECT_EQ(read("longlength2"), part_);
  EXPECT_EQ(read("more"), part_);
}

TEST_F(RemoteTest, waits_as_long_as_the_server_requests) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read("many1+after1"), part_);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(RemoteTest, a_wait_beyond_the_limit_ends_with_a_last_attempt) {
  EXPECT_EQ(read("many1+after+long", false, no_patience(1)), part_);
  EXPECT_EQ(requests("many1+after+long"), 2);
  expect_remote_refusal<UnreachableError>("data/remote", "many+after+long", {"429", "100 s"},
                                          [&] { read("many+after+long", false, no_patience(1)); });
  EXPECT_EQ(requests("many+after+long"), 2);
}

// The type tells a wrong object, a wrong request and no answer apart.
TEST_F(RemoteTest, aborts_with_the_last_error) {
  expect_error<UnreachableError>("busy", "503");
  expect_error<UnreachableError>("wrongrange", "[1000, 250000)");
  expect_error<UnreachableError>("shortlength", "124500");
  expect_error<DataError>("wrongsize", "300001");
  expect_type<UnreachableError>("drop");
  server_->end();
  expect_type<UnreachableError>("plain");
}

TEST_F(RemoteTest, permanent_errors_are_not_retried) {
  expect_error<RefusedError>("forbidden", "403");
  expect_error<RefusedError>("login", "401");
  expect_error<RefusedError>("expired", "400");
  expect_error<DataError>("missing", "404");
  for (const auto* modes : {"forbidden", "login", "expired", "missing"})
    EXPECT_EQ(requests(modes), 1) << modes;
  expect_type<AccessError>("circle");
  EXPECT_EQ(requests("circle"), 6);  // five redirects
  RemoteReader reader(remote_, stop_);
  expect_refusal<DataError>("data/remote", "an object that is shorter", {"416"}, [&] {
    reader.read(server_->url("plain/a.bin"), {kBytes, kBytes + 10}, kBytes + 10, false,
                [](std::span<const std::byte>, std::int64_t) { FAIL(); });
  });
}

TEST_F(RemoteTest, without_ranges_returns_false_or_skips) {
  EXPECT_EQ(read("noranges"), "ranges are ignored");
  EXPECT_EQ(read("noranges", true), part_);
  EXPECT_EQ(read("noranges+cut2", true), part_);
}

TEST_F(RemoteTest, reads_a_whole_object_up_to_a_limit_and_restarts) {
  RemoteReader reader(remote_, stop_);
  EXPECT_EQ(reader.read_all(server_->url("cut2/a.bin"), kBytes), bytes_);
  expect_refusal<DataError>("data/remote", "more than the limit", {"299999"},
                            [&] { reader.read_all(server_->url("plain/a.bin"), kBytes - 1); });
}

TEST_F(RemoteTest, stop_aborts_a_stalled_request) {
  Patience patience;  // whose own limits are far away
  Remote remote(no_environment(), patience);
  RemoteReader reader(remote, stop_);
  std::thread stopper([&] {
    wait_until([&] { return requests("stall") > 0; });
    stop_ = true;
  });
  expect_refusal<AccessError>("data/remote", "a stop", {"/stall/a.bin: "},
                              [&] { reader.read_all(server_->url("stall/a.bin"), kBytes); });
  stopper.join();
}

TEST_F(RemoteTest, invalid_addresses_are_an_error) {
  for (const char* url : {"https://host", "http://host", "https:///a", "https://host/a?b=c/d",
                          "https://name:hidden@host/a", "s3://b/k"})
    expect_refusal<AccessError>("data/remote", url, {}, [&] { remote_.request(url); });
  const auto text = message_of<AccessError>([&] { remote_.request("https://name:hidden@host/a"); });
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_EQ(remote_.request("https://host/a%20b/c d#?%.bin").url,
            "https://host/a%20b/c%20d%23%3F%25.bin");
}

}  // namespace lockstep::testing::remote_test

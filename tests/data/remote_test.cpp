#include "data/remote.h"

#include <chrono>
#include <thread>

#include "tests/data/bad_server.h"

namespace lockstep::remote_test {

using testing::BadServer;
using testing::expect_contains;
using testing::message_of;

constexpr std::int64_t kBytes = 300'000;

class RemoteTest : public ::testing::Test {
 protected:
  RemoteTest() {
    testing::spit(directory_ / "a.bin", bytes_);
    testing::spit(directory_ / "a.bin.new", testing::noise(kBytes, 2));
    server_ = std::make_unique<BadServer>(directory_.path());
  }

  // Bytes [1000, 250000) by a way of the server.
  std::string read(const std::string& modes, bool may_skip = false,
                   const Patience& patience = testing::quick_patience()) {
    Remote remote(testing::no_environment(), patience);
    RemoteReader reader(remote, stop_);
    std::string got;
    const bool done =
        reader.read(server_->url(modes + "/a.bin"), {1000, 250'000}, kBytes, may_skip,
                    [&](std::span<const std::byte> bytes, std::int64_t offset) {
                      EXPECT_EQ(offset, 1000 + static_cast<std::int64_t>(got.size()));
                      got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                    });
    return done ? got : "ranges are ignored";
  }
  int requests(const std::string& modes) { return server_->requests(modes + "/a.bin"); }
  // The error of a way that never gets better.
  std::string error(const std::string& modes) {
    return message_of<DataError>([&] { read(modes, false, testing::no_patience()); });
  }

  testing::TemporaryDirectory directory_;
  std::string bytes_ = testing::noise(kBytes);
  std::string part_ = bytes_.substr(1000, 249'000);
  std::unique_ptr<BadServer> server_;
  Remote remote_{testing::no_environment(), testing::quick_patience()};
  std::atomic<bool> stop_ = false;
};

TEST_F(RemoteTest, reads_a_range_by_one_request) {
  EXPECT_EQ(read("plain"), part_);
  EXPECT_EQ(requests("plain"), 1);
  EXPECT_EQ(read("chunked"), part_);
}

TEST_F(RemoteTest, goes_on_where_a_connection_was_cut) {
  EXPECT_EQ(read("cut3"), part_);
  const auto ranges = server_->ranges("cut3/a.bin");
  ASSERT_EQ(ranges.size(), 4u);
  std::int64_t at = 1000;  // each sends a third of what is left
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ(ranges[i], (ByteRange{at, 250'000})) << i;
    at += (250'000 - at) / 3;
  }
}

TEST_F(RemoteTest, goes_on_where_a_server_stalled) {
  EXPECT_EQ(read("stall1", false, testing::little_patience()), part_);
  EXPECT_EQ(server_->ranges("stall1/a.bin").at(1), (ByteRange{1000 + 83'000, 250'000}));
}

TEST_F(RemoteTest, tries_again_what_may_pass) {
  for (const std::string modes : {"busy2", "error2", "many2", "drop2", "wrongrange2", "wrongsize2",
                                  "shortlength2", "busy1+after1"}) {
    EXPECT_EQ(read(modes), part_) << modes;
    EXPECT_EQ(requests(modes), modes == "busy1+after1" ? 2 : 3) << modes;
  }
}

TEST_F(RemoteTest, a_length_that_is_too_long_or_a_body_that_is_gives_no_byte_twice) {
  EXPECT_EQ(read("longlength2"), part_);
  EXPECT_EQ(read("more"), part_);
}

TEST_F(RemoteTest, waits_as_long_as_the_server_asks) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read("many1+after1"), part_);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(RemoteTest, a_wait_longer_than_patience_ends_with_a_last_attempt) {
  EXPECT_EQ(read("many1+after+long", false, testing::no_patience()), part_);
  EXPECT_EQ(requests("many1+after+long"), 2);
  const auto text = error("many+after+long");
  expect_contains(text, "HTTP status 429; given up after 2 attempts");
  expect_contains(text, "the server asks to wait 100 s");
  EXPECT_EQ(requests("many+after+long"), 2);
}

TEST_F(RemoteTest, gives_up_and_says_what_was_wrong_last) {
  for (const auto& [modes, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"busy", "HTTP status 503; given up after"},
           {"wrongrange",
            "asked for bytes [1000, 250000), and the server says that it sends [1001"},
           {"wrongsize", "expected an object of 300000 bytes, the server says 300001"},
           {"shortlength", "and that these are 124500"}}) {
    const auto text = error(modes);
    expect_contains(text, server_->url(str(modes, "/a.bin: ")));
    expect_contains(text, what);
    EXPECT_GE(requests(modes), 2) << modes;
  }
}

TEST_F(RemoteTest, refuses_at_once_what_will_not_pass) {
  for (const auto& [modes, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"forbidden",
            "HTTP status 403; a name and password for the host are read from ~/.netrc"},
           {"login", "HTTP status 401; a name"},
           {"missing", "HTTP status 404; there is no such file"},
           {"circle", "redirects"}})
    expect_contains(error(modes), what);
  for (const auto* modes : {"forbidden", "login", "missing"})
    EXPECT_EQ(requests(modes), 1) << modes;
  EXPECT_EQ(requests("circle"), 6);  // five redirects
}

// Whether what is wrong is the object, or who asks, or that nobody answers.
TEST_F(RemoteTest, tells_what_is_damage_from_what_is_not) {
  const auto kind = [&](const std::string& modes) -> std::string {
    try {
      read(modes, false, testing::no_patience());
    } catch (const RefusedError&) {
      return "refused";
    } catch (const UnreachableError&) {
      return "unreachable";
    } catch (const AccessError&) {
      return "no access";
    } catch (const DataError&) {
      return "the object";
    }
    return "nothing";
  };
  for (const auto& [modes, expected] :
       std::initializer_list<std::pair<const char*, const char*>>{{"missing", "the object"},
                                                                  {"wrongsize", "the object"},
                                                                  {"forbidden", "refused"},
                                                                  {"login", "refused"},
                                                                  {"expired", "refused"},
                                                                  {"circle", "no access"},
                                                                  {"busy", "unreachable"},
                                                                  {"drop", "unreachable"},
                                                                  {"wrongrange", "unreachable"}})
    EXPECT_EQ(kind(modes), expected) << modes;
  server_->end();
  EXPECT_EQ(kind("plain"), "unreachable");
  for (const char* wrong : {"https://me:secret@host/a", "http://host", "s3://b/k"})
    EXPECT_NE(message_of<AccessError>([&] { remote_.request(wrong); }), "") << wrong;
}

TEST_F(RemoteTest, follows_a_redirect) {
  EXPECT_EQ(read("elsewhere"), part_);
}

TEST_F(RemoteTest, an_object_that_is_shorter_is_refused) {
  RemoteReader reader(remote_, stop_);
  expect_contains(message_of<DataError>([&] {
                    reader.read(server_->url("plain/a.bin"), {kBytes, kBytes + 10}, kBytes + 10,
                                false, [](std::span<const std::byte>, std::int64_t) { FAIL(); });
                  }),
                  "HTTP status 416; the object is shorter than dataset.json says");
}

TEST_F(RemoteTest, without_ranges_says_so_or_reads_over) {
  EXPECT_EQ(read("noranges"), "ranges are ignored");
  EXPECT_EQ(read("noranges", true), part_);
  EXPECT_EQ(read("noranges+cut2", true), part_);
}

TEST_F(RemoteTest, nobody_listens) {
  const auto url = server_->url("plain/a.bin");
  server_->end();
  Remote remote(testing::no_environment(), testing::no_patience());
  RemoteReader reader(remote, stop_);
  const auto text = message_of<AccessError>([&] { reader.read_all(url, 1000); });
  expect_contains(text, "onnect");
  expect_contains(text, "given up after");
}

TEST_F(RemoteTest, reads_all_up_to_a_limit_and_begins_anew) {
  RemoteReader reader(remote_, stop_);
  EXPECT_EQ(reader.read_all(server_->url("cut2/a.bin"), kBytes), bytes_);
  expect_contains(
      message_of<DataError>([&] { reader.read_all(server_->url("plain/a.bin"), kBytes - 1); }),
      "more than 299999 bytes");
}

TEST_F(RemoteTest, a_stop_ends_a_stalled_request) {
  Patience patience;  // whose own limits are far away
  Remote remote(testing::no_environment(), patience);
  RemoteReader reader(remote, stop_);
  std::thread stopper([&] {
    while (requests("stall") == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stop_ = true;
  });
  expect_contains(
      message_of<AccessError>([&] { reader.read_all(server_->url("stall/a.bin"), kBytes); }),
      "reading was stopped");
  stopper.join();
}

TEST_F(RemoteTest, addresses_that_are_none) {
  const auto refusal = [&](const std::string& url) {
    return message_of<DataError>([&] { remote_.request(url); });
  };
  expect_contains(refusal("https://host"), "expected https://HOST/PREFIX/NAME");
  expect_contains(refusal("https:///a"), "expected https://HOST/PREFIX/NAME");
  expect_contains(refusal("https://host/a?b=c/d"), "expected https://HOST/PREFIX/NAME");
  const auto text = refusal("https://name:hidden@host/a");
  expect_contains(text, "~/.netrc");
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_EQ(remote_.request("https://host/a%20b/c d#?%.bin").url,
            "https://host/a%20b/c%20d%23%3F%25.bin");
}

}  // namespace lockstep::remote_test

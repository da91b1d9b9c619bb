#include "data/remote/shard_cache.h"

#include <array>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <set>
#include <sys/stat.h>
#include <thread>

#include "core/hash.h"
#include "tests/data/bad_server.h"
#include "tests/no_threads.h"

namespace lockstep::testing::shard_cache_test {

constexpr std::int64_t kBytes = 20 * PartFile::kBlockBytes + 12345;

std::string contents(const Descriptor& file) {
  std::string text(static_cast<std::size_t>(lseek(file.number(), 0, SEEK_END)), '\0');
  EXPECT_EQ(pread(file.number(), text.data(), text.size(), 0), std::ssize(text));
  return text;
}

class ShardCacheTest : public ::testing::Test {
 protected:
  ShardCacheTest() {
    std::filesystem::create_directory(files_);
    server_ = std::make_unique<BadServer>(files_);
  }
  std::string make(const std::string& name, std::int64_t bytes = kBytes) {
    auto text = noise(static_cast<std::size_t>(bytes), std::hash<std::string>()(name));
    spit(files_ / name, text);
    return text;
  }
  CachedShard shard(const std::string& modes, const std::string& name) const {
    const auto text = slurp(files_ / name);
    return {server_->url(modes + '/' + name), hash_hex(text), std::ssize(text)};
  }
  ShardCache::Config config(std::int64_t most_bytes = 1 << 30, double room_seconds = 0.2) const {
    return {directory_ / "cache", most_bytes, 4, room_seconds};
  }
  bool has(const CachedShard& shard) const {
    return std::filesystem::exists(directory_ / "cache" / shard.hash);
  }
  // `count` shards of 100 bytes.
  std::vector<CachedShard> make_small(std::size_t count) {
    std::vector<CachedShard> shards;
    for (std::size_t i = 0; i < count; ++i) {
      make(str(i), 100);
      shards.push_back(shard("plain", str(i)));
    }
    return shards;
  }
  template <class E>
  void expect_refused(const char* name, std::initializer_list<std::string> pins, ShardCache& cache,
                      const CachedShard& shard) {
    expect_remote_refusal<E>("data/shard_cache", name, pins, [&] { cache.open(shard); });
  }

  TemporaryDirectory directory_{fast_directory()};
  std::filesystem::path files_ = directory_ / "files";
  std::unique_ptr<BadServer> server_;
  Remote remote_{no_environment(), quick_patience()};
};

// Each byte of [0, bytes) is in exactly one of the ranges.
void expect_each_once(std::vector<ByteRange> ranges, std::int64_t bytes) {
  std::sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::int64_t at = 0;
  for (const auto& range : ranges) {
    EXPECT_EQ(range.first, at);
    at = range.end;
  }
  EXPECT_EQ(at, bytes);
}

TEST_F(ShardCacheTest, fetches_a_shard_once_in_ranges) {
  const auto text = make("a.bin");
  const auto a = shard("plain", "a.bin");
  {
    ShardCache cache(config(), remote_);
    EXPECT_EQ(contents(cache.open(a)), text);
    EXPECT_EQ(contents(cache.open(a)), text);
    const auto counts = cache.counts();
    EXPECT_EQ(counts.hits, 1);
    EXPECT_EQ(counts.misses, 1);
    EXPECT_EQ(counts.fetched_bytes, kBytes);
    EXPECT_GT(counts.fetching_seconds, 0);
  }
  ShardCache later(config(), remote_);
  EXPECT_EQ(contents(later.open(a)), text);
  EXPECT_EQ(later.counts().hits, 1);
  const auto ranges = server_->ranges("plain/a.bin");
  EXPECT_EQ(ranges.size(), 3u);  // of 8 MiB
  expect_each_once(ranges, kBytes);
}

TEST_F(ShardCacheTest, many_threads_share_a_fetch) {
  const auto text = make("a.bin");
  const auto a = shard("plain", "a.bin");
  ShardCache cache(config(), remote_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { EXPECT_EQ(contents(cache.open(a)), text); });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(cache.counts().fetched_bytes, kBytes);
}

TEST_F(ShardCacheTest, a_truncated_file_is_fetched_again) {
  const auto cut = make("a.bin"), whole = make("b.bin");
  const auto a = shard("plain", "a.bin"), b = shard("plain", "b.bin");
  std::filesystem::create_directories(directory_ / "cache");
  spit(directory_ / "cache" / a.hash, cut.substr(0, 1000));
  constexpr double kPatience = 60;  // until the other is done with it
  ShardCache cache(config(PartFile::file_bytes(kBytes), kPatience), remote_);  // room for one
  std::thread other([&] { EXPECT_EQ(contents(cache.open(b)), whole); });
  EXPECT_EQ(contents(cache.open(a)), cut);
  other.join();
}

TEST_F(ShardCacheTest, two_caches_share_a_directory_and_a_fetch) {
  const auto text = make("a.bin");
  const auto a = shard("slow", "a.bin");
  ShardCache one(config(), remote_), two(config(), remote_);
  std::thread other([&] { EXPECT_EQ(contents(two.open(a)), text); });
  EXPECT_EQ(contents(one.open(a)), text);
  other.join();
  EXPECT_EQ(one.counts().fetched_bytes + two.counts().fetched_bytes, kBytes);
  expect_each_once(server_->ranges("slow/a.bin"), kBytes);
}

TEST_F(ShardCacheTest, the_bytes_are_right_with_any_server_fault) {
  const auto text = make("a.bin", 3 * PartFile::kBlockBytes);
  for (const char* modes : {"cut3", "busy3", "error2", "drop2", "wrongrange2", "wrongsize2",
                            "shortlength2", "longlength2", "more", "chunked", "elsewhere",
                            "noranges", "noranges+cut2", "busy2+after1"}) {
    std::filesystem::remove_all(directory_ / "cache");
    ShardCache cache(config(), remote_);
    EXPECT_EQ(contents(cache.open(shard(modes, "a.bin"))), text) << modes;
  }
}

TEST_F(ShardCacheTest, a_server_without_ranges_sends_a_large_shard_once) {
  const auto text = make("a.bin");
  ShardCache cache(config(), remote_);
  EXPECT_EQ(contents(cache.open(shard("noranges", "a.bin"))), text);
  EXPECT_LE(server_->requests("noranges/a.bin"), 4);  // those of the start, and one for the rest
}

// changed1: the first request is answered from another object, the rest from this one.
TEST_F(ShardCacheTest, wrong_bytes_are_fetched_again_once) {
  const auto text = make("a.bin");
  spit(files_ / "a.bin.new", noise(static_cast<std::size_t>(kBytes), 77));
  for (const char* modes : {"flip1", "changed1"}) {
    std::filesystem::remove_all(directory_ / "cache");
    ShardCache cache(config(), remote_);
    EXPECT_EQ(contents(cache.open(shard(modes, "a.bin"))), text);
    EXPECT_EQ(cache.counts().fetched_bytes, 2 * kBytes) << modes;
  }
  std::filesystem::remove_all(directory_ / "cache");
  ShardCache cache(config(), remote_);
  const auto a = shard("flip", "a.bin");
  expect_refused<DataError>("wrong bytes", {a.url, a.hash}, cache, a);
  EXPECT_FALSE(has(a));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "cache" / (a.hash + ".part")));
}

TEST_F(ShardCacheTest, errors_are_thrown_to_waiting_threads_and_retried_later) {
  make("a.bin", 1000);
  Remote hasty(no_environment(), no_patience());
  ShardCache cache(config(), hasty);
  expect_refused<RefusedError>("forbidden", {"403"}, cache, shard("forbidden", "a.bin"));
  auto longer = shard("plain", "a.bin");
  longer.bytes = 1001;
  expect_refused<DataError>("another size", {"1001", "1000"}, cache, longer);
  EXPECT_TRUE(cache.open(shard("plain", "a.bin")));
}

TEST_F(ShardCacheTest, shards_ahead_are_present_when_opened) {
  std::vector<CachedShard> ahead;
  for (const char* name : {"a.bin", "b.bin", "c.bin"}) {
    make(name, 1000);
    ahead.push_back(shard("plain", name));
  }
  ahead.push_back({server_->url("missing/d.bin"), hash_hex("d"), 1000});  // a line of the log
  ShardCache cache(config(), remote_);
  cache.set_ahead(ahead);
  for (int i = 0; i < 3; ++i)
    wait_until([&] { return has(ahead[static_cast<std::size_t>(i)]); });
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(cache.open(ahead[static_cast<std::size_t>(i)]));
  EXPECT_EQ(cache.counts().hits, 3);
  expect_refused<DataError>("missing", {"404"}, cache, ahead[3]);
}

TEST_F(ShardCacheTest, reads_many_shards_with_little_room) {
  constexpr int kShards = 12, kBytesEach = 100;
  const auto shards = make_small(kShards);
  ShardCache cache(config(3 * PartFile::file_bytes(kBytesEach)), remote_);
  Descriptor current;
  for (int i = 0; i < 2 * kShards; ++i) {
    const auto& next = shards[static_cast<std::size_t>(i % kShards)];
    cache.set_ahead({next, shards[static_cast<std::size_t>((i + 1) % kShards)]});
    current = cache.open(next);
    int there = 0;
    for (const auto& each : shards)
      there += has(each) ? 1 : 0;
    EXPECT_LE(there, 3);
  }
  // Each once a round, and the last one ahead, maybe.
  EXPECT_GE(cache.counts().fetched_bytes, 2 * kShards * kBytesEach);
  EXPECT_LE(cache.counts().fetched_bytes, (2 * kShards + 1) * kBytesEach);
}

TEST_F(ShardCacheTest, a_requested_shard_displaces_the_farthest_ahead_but_none_in_use) {
  for (const char* name : {"a", "b", "c", "d"})
    make(name, 1000);
  const auto a = shard("plain", "a"), b = shard("plain", "b"), c = shard("plain", "c"),
             d = shard("plain", "d");
  ShardCache cache(config(3 * PartFile::file_bytes(1000)), remote_);
  const auto used = cache.open(a);
  cache.set_ahead({b});
  wait_until([&] { return has(b); });
  std::filesystem::last_write_time(
      directory_ / "cache" / b.hash,  // b was used before c
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  cache.set_ahead({b, c});
  wait_until([&] { return has(c); });
  const auto also_used = cache.open(d);
  EXPECT_TRUE(has(a) && has(b) && has(d));
  EXPECT_FALSE(has(c));
  const auto third = cache.open(b);
  expect_refused<AccessError>("no space", {"1000", "data.cache_bytes"}, cache, c);
}

// The files of a directory that this process has open.
std::set<std::string> open_in(const std::filesystem::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.parent_path() == directory) names.insert(target.filename());
  }
  return names;
}

TEST_F(ShardCacheTest, the_next_shards_ahead_are_held_open) {
  constexpr std::size_t kAhead = ShardCache::kMostHeld + 100;
  auto ahead = make_small(kAhead);
  make("last", 100);
  ShardCache cache(config(), remote_);
  const auto fetched = [&](std::size_t count) {
    wait_until([&] { return cache.counts().fetched == static_cast<std::int64_t>(count); });
  };
  cache.set_ahead(ahead);
  fetched(kAhead);
  const auto open = open_in(directory_ / "cache");
  EXPECT_EQ(open.size(), ShardCache::kMostHeld);
  for (std::size_t i = 0; i < ShardCache::kMostHeld; ++i)
    EXPECT_EQ(open.count(ahead[i].hash), 1u) << i;
  // Who opens one marks it as used.
  const std::array<timespec, 2> long_ago{timespec{1000, 0}, timespec{1000, 0}};
  for (std::size_t i = ShardCache::kMostHeld; i < kAhead; ++i)
    utimensat(AT_FDCWD, (directory_ / "cache" / ahead[i].hash).c_str(), long_ago.data(), 0);
  ahead.push_back(shard("plain", "last"));
  cache.set_ahead(ahead);
  fetched(kAhead + 1);
  for (std::size_t i = ShardCache::kMostHeld; i < kAhead; ++i) {
    struct stat status {};
    stat((directory_ / "cache" / ahead[i].hash).c_str(), &status);
    EXPECT_EQ(status.st_mtim.tv_sec, 1000) << i;
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] { EXPECT_TRUE(cache.open(ahead[kAhead - 1])); });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(cache.counts().hits, 3);
  EXPECT_EQ(open_in(directory_ / "cache").size(), ShardCache::kMostHeld);
  // What another process removed comes again when it is opened.
  std::filesystem::remove(directory_ / "cache" / ahead[kAhead - 2].hash);
  EXPECT_TRUE(cache.open(ahead[kAhead - 2]));
  EXPECT_EQ(cache.counts().fetched, static_cast<std::int64_t>(kAhead + 2));
}

TEST_F(ShardCacheTest, without_threads_the_cache_is_an_error) {
  const NoThreads none;
  EXPECT_THROW(ShardCache(config(), remote_), TransientError);
}

TEST_F(ShardCacheTest, stop_ends_waiting_threads) {
  make("a.bin");
  Remote patient(no_environment(), Patience{});
  ShardCache cache(config(), patient);
  const auto a = shard("stall", "a.bin");
  std::thread stopper([&] {
    wait_until([&] { return server_->requests("stall/a.bin") > 0; });
    cache.stop();
  });
  EXPECT_THROW(cache.open(a), AccessError);  // of the cache or of the request, which is first
  stopper.join();
}

// The blocks that a .part file says it has, read here by what docs/streaming.md says of it.
std::vector<ByteRange> blocks_there(const std::filesystem::path& part, std::int64_t bytes) {
  const auto text = slurp(part);
  const auto marks = static_cast<std::size_t>(bytes) + 16;
  if (text.size() <= marks) return {};
  EXPECT_EQ(text.substr(static_cast<std::size_t>(bytes), 16), "lockstep part 1\n");
  std::vector<ByteRange> there;
  for (std::int64_t first = 0, block = 0; first < bytes; first += 1 << 20, ++block)
    if ((text[marks + static_cast<std::size_t>(block / 8)] >> (block % 8) & 1) != 0)
      there.push_back({first, std::min<std::int64_t>(first + (1 << 20), bytes)});
  return there;
}

TEST_F(ShardCacheTest, after_a_kill_only_incomplete_blocks_are_fetched_again) {
  const auto text = make("a.bin");
  const auto a = shard("slow", "a.bin");
  const auto part = directory_ / "cache" / (a.hash + ".part");
  const auto child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ShardCache cache(config(), remote_);
    cache.open(a);
    _exit(0);
  }
  wait_until(
      [&] { return std::filesystem::exists(part) && blocks_there(part, kBytes).size() >= 5; });
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "it was too quick";
  auto there = blocks_there(part, kBytes);
  ShardCache cache(config(), remote_);
  EXPECT_EQ(contents(cache.open(shard("plain", "a.bin"))), text);
  EXPECT_LT(cache.counts().fetched_bytes, kBytes);
  const auto asked = server_->ranges("plain/a.bin");
  there.insert(there.end(), asked.begin(), asked.end());
  expect_each_once(there, kBytes);  // cached shards are not fetched again
}

}  // namespace lockstep::testing::shard_cache_test

#include "data/remote/cache_directory.h"

#include <chrono>
#include <fcntl.h>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/hash.h"
#include "tests/data/bad_server.h"

namespace lockstep::testing::cache_directory_test {

using Taken = CacheDirectory::Taken;

constexpr auto kBlock = PartFile::kBlockBytes;
const auto kAll = [](const std::string&) { return true; };

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class CacheDirectoryTest : public ::testing::Test {
 protected:
  // A shard is brought, and let go of.
  std::string add(CacheDirectory& cache, const std::string& text) {
    auto hash = hash_hex(text);
    std::unique_ptr<PartFile> part;
    EXPECT_EQ(cache.take(hash, static_cast<std::int64_t>(text.size()), kAll, part), Taken::here);
    if (!part) return hash;
    part->write(bytes_of(text), 0);
    EXPECT_TRUE(part->missing().empty());
    EXPECT_TRUE(part->keep());
    last_used(hash, ++uses_);
    return hash;
  }
  // As if it was used `uses` seconds after an hour ago: times of use differ on any file system.
  void last_used(const std::string& hash, int uses) const {
    const auto hour_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
    if (has(hash))
      std::filesystem::last_write_time(directory_ / hash, hour_ago + std::chrono::seconds(uses));
  }
  bool has(const std::string& name) const { return std::filesystem::exists(directory_ / name); }

  TemporaryDirectory directory_{fast_directory()};
  std::unique_ptr<PartFile> part_;
  int uses_ = 0;
};

TEST_F(CacheDirectoryTest, keeps_complete_shards) {
  CacheDirectory cache(directory_ / "made/here", 1 << 20);
  const auto hash = hash_hex("tokens");
  EXPECT_FALSE(cache.open(hash, 6));
  add(cache, "tokens");
  EXPECT_EQ(slurp(directory_ / "made/here" / hash), "tokens");
  const ReadFile file(cache.open(hash, 6).release(), "name");
  EXPECT_EQ(read_text(file, 6), "tokens");
  EXPECT_EQ(cache.take(hash, 6, kAll, part_), Taken::whole);
}

TEST_F(CacheDirectoryTest, a_file_of_another_size_is_removed_unless_open) {
  CacheDirectory cache(directory_.path(), 1 << 20);
  const auto hash = add(cache, "tokens");
  {
    const auto held = cache.open(hash, 6);
    EXPECT_FALSE(cache.open(hash, 7));
    expect_refusal<DataError>("data/cache_directory", "another size, and open", {hash, "6", "7"},
                              [&] { cache.take(hash, 7, kAll, part_); });
  }
  EXPECT_FALSE(cache.open(hash, 7));
  EXPECT_TRUE(has(hash));
  EXPECT_EQ(cache.take(hash, 7, kAll, part_), Taken::here);
  EXPECT_FALSE(has(hash));
}

TEST_F(CacheDirectoryTest, another_process_resumes_a_part) {
  const std::int64_t bytes = 5 * kBlock + 100;
  const auto text = noise(static_cast<std::size_t>(bytes));
  const auto hash = hash_hex(text);
  const auto piece = [&](std::int64_t first, std::int64_t end) {
    return bytes_of(text).subspan(static_cast<std::size_t>(first),
                                  static_cast<std::size_t>(end - first));
  };
  CacheDirectory cache(directory_.path(), 1 << 24);
  ASSERT_EQ(cache.take(hash, bytes, kAll, part_), Taken::here);
  EXPECT_EQ(part_->missing(), (std::vector<ByteRange>{{0, bytes}}));
  part_->write(piece(kBlock, kBlock + 500), kBlock);
  part_->write(piece(kBlock + 500, 3 * kBlock + 1), kBlock + 500);  // two blocks and a byte
  part_->write(piece(5 * kBlock, bytes), 5 * kBlock);               // the short one
  const std::vector<ByteRange> left{{0, kBlock}, {3 * kBlock, 5 * kBlock}};
  EXPECT_EQ(part_->missing(), left);

  std::unique_ptr<PartFile> other;
  EXPECT_EQ(CacheDirectory(directory_.path(), 1 << 24).take(hash, bytes, kAll, other),
            Taken::elsewhere);
  part_.reset();  // as when its process is killed: nothing is written then
  ASSERT_EQ(cache.take(hash, bytes, kAll, part_), Taken::here);
  EXPECT_EQ(part_->missing(), left);
  part_->write(piece(0, kBlock), 0);
  part_->write(piece(3 * kBlock, 5 * kBlock), 3 * kBlock);
  EXPECT_TRUE(part_->missing().empty());
  EXPECT_TRUE(part_->keep());
  EXPECT_EQ(slurp(directory_ / hash), text);
  EXPECT_FALSE(has(hash + ".part"));
}

TEST_F(CacheDirectoryTest, a_part_is_complete_after_a_kill_between_the_last_steps) {
  CacheDirectory cache(directory_.path(), 1 << 20);
  const auto hash = hash_hex("tokens");
  spit(directory_ / (hash + ".part"), "tokens");
  ASSERT_EQ(cache.take(hash, 6, kAll, part_), Taken::here);
  EXPECT_TRUE(part_->missing().empty());
  part_->forget();  // as when the hash is another
  EXPECT_EQ(part_->missing(), (std::vector<ByteRange>{{0, 6}}));
  part_.reset();
  ASSERT_EQ(cache.take(hash, 6, kAll, part_), Taken::here);
  EXPECT_EQ(part_->missing(), (std::vector<ByteRange>{{0, 6}}));
}

TEST_F(CacheDirectoryTest, an_invalid_part_is_started_again) {
  CacheDirectory cache(directory_.path(), 1 << 20);
  const auto hash = hash_hex("tokens");
  for (const auto& wrong : {std::string("x"), std::string(1000, 'x'),
                            std::string(static_cast<std::size_t>(PartFile::file_bytes(6)), 'x')}) {
    spit(directory_ / (hash + ".part"), wrong);
    ASSERT_EQ(cache.take(hash, 6, kAll, part_), Taken::here);
    EXPECT_EQ(part_->missing(), (std::vector<ByteRange>{{0, 6}}));
    part_.reset();
  }
}

TEST_F(CacheDirectoryTest, the_least_recently_used_is_removed_first) {
  const auto room = 3 * PartFile::file_bytes(1000);
  CacheDirectory cache(directory_.path(), room);
  const auto a = add(cache, std::string(1000, 'a')), b = add(cache, std::string(1000, 'b')),
             c = add(cache, std::string(1000, 'c'));
  spit(directory_ / "notes.txt", std::string(10'000, 'x'));  // not of the cache
  cache.open(a, 1000);                                       // and closed
  last_used(c, 0);
  const auto d = add(cache, std::string(1000, 'd'));
  EXPECT_TRUE(has(a) && has(b) && has(d));
  EXPECT_FALSE(has(c));
  add(cache, std::string(1000, 'e'));
  EXPECT_TRUE(has(a) && has(d));
  EXPECT_FALSE(has(b));
  EXPECT_TRUE(has("notes.txt"));
  EXPECT_EQ(cache.evicted(), 2);
}

TEST_F(CacheDirectoryTest, open_and_kept_shards_stay_when_there_is_no_room) {
  CacheDirectory cache(directory_.path(), 2 * PartFile::file_bytes(1000));
  const auto a = add(cache, std::string(1000, 'a')), b = add(cache, std::string(1000, 'b'));
  auto opened = cache.open(a, 1000);
  const Descriptor copy(dup(opened.number()));  // as of a rank that was handed it
  opened = Descriptor();
  const auto not_b = [&](const std::string& hash) { return hash != b; };
  const auto c = hash_hex("c");
  EXPECT_EQ(cache.take(c, 1000, not_b, part_), Taken::no_room);
  EXPECT_FALSE(has(c + ".part"));
  EXPECT_TRUE(has(a) && has(b));
  EXPECT_EQ(cache.take(c, 1000, kAll, part_), Taken::here);
  EXPECT_TRUE(has(a));
  EXPECT_FALSE(has(b));
}

TEST_F(CacheDirectoryTest, parts_of_dead_processes_are_removed_and_others_stay) {
  CacheDirectory cache(directory_.path(), 2 * PartFile::file_bytes(1000));
  const auto dead = hash_hex("dead"), living = hash_hex("living");
  ASSERT_EQ(cache.take(dead, 1000, kAll, part_), Taken::here);
  part_.reset();
  std::unique_ptr<PartFile> held;
  ASSERT_EQ(cache.take(living, 1000, kAll, held), Taken::here);
  ASSERT_EQ(cache.take(hash_hex("new"), 1000, kAll, part_), Taken::here);
  EXPECT_FALSE(has(dead + ".part"));
  EXPECT_TRUE(has(living + ".part"));
}

// Each of three processes reads shards at random, and brings those that are not there: there is
// room for three of six, so that each removes what others brought.
TEST_F(CacheDirectoryTest, processes_add_and_remove_shards_concurrently) {
  constexpr int kShards = 6, kRounds = 1'500;
  std::vector<std::string> texts, hashes;
  for (int i = 0; i < kShards; ++i) {
    texts.push_back(noise(1000, static_cast<std::uint64_t>(i) + 1));
    hashes.push_back(hash_hex(texts.back()));
  }
  const auto work = [&](unsigned seed) {
    std::minstd_rand random(seed);
    CacheDirectory cache(directory_.path(), 3 * PartFile::file_bytes(1000));
    int brought = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto i = random() % kShards;
      auto file = cache.open(hashes[i], 1000);
      std::unique_ptr<PartFile> part;
      if (!file && cache.take(hashes[i], 1000, kAll, part) == Taken::here) {
        if (random() % 8 == 0) {
          part->remove();  // as when the bytes are wrong
          continue;
        }
        part->write(bytes_of(texts[i]), 0);
        file = part->keep();
        LOCKSTEP_CHECK(file, "a shard that was brought is not kept");
        ++brought;
      }
      if (file && read_text(ReadFile(file.release(), "shard"), 1000) != texts[i])
        throw DataError("other bytes");
    }
    LOCKSTEP_CHECK(brought > kRounds / 50, "brought ", brought);
  };
  std::vector<pid_t> children;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const auto child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        work(seed);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        _exit(1);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const auto child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
    EXPECT_FALSE(entry.path().string().ends_with(".part")) << entry.path();
}

TEST_F(CacheDirectoryTest, a_shard_that_never_fits_is_an_error) {
  CacheDirectory cache(directory_.path(), 1000);
  expect_refusal<DataError>("data/cache_directory", "a shard that never fits",
                            {"1000", "data.cache_bytes"},
                            [&] { cache.take(hash_hex("a"), 1000, kAll, part_); });
}

TEST_F(CacheDirectoryTest, a_full_disk_is_reported_after_evicting_all_that_is_possible) {
  const SmallDisk disk(8 * kBlock);
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a small disk";
  CacheDirectory cache(disk.path(), 100 * kBlock);
  const auto text = noise(3 * kBlock);
  const auto a = add(cache, text);
  spit(disk.path() / "of_others", std::string(2 * kBlock, 'x'));
  const auto bytes = 5 * kBlock;  // does not fit beside `a`
  ASSERT_EQ(cache.take(hash_hex("b"), bytes, kAll, part_), Taken::here);
  EXPECT_FALSE(std::filesystem::exists(disk.path() / a));
  part_->remove();
  part_.reset();
  expect_refusal<StorageError>("data/cache_directory", "a full disk", {"7.34 MB"},
                               [&] { cache.take(hash_hex("c"), 7 * kBlock, kAll, part_); });
  EXPECT_FALSE(std::filesystem::exists(disk.path() / (hash_hex("c") + ".part")));
}

TEST_F(CacheDirectoryTest, the_default_size_is_half_of_free_space_and_cached_bytes) {
  const SmallDisk disk(8 * kBlock);
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a small disk";
  CacheDirectory first(disk.path(), 0);
  EXPECT_NEAR(static_cast<double>(first.most_bytes()), 4.0 * kBlock, 0.1 * kBlock);
  add(first, noise(3 * kBlock));
  EXPECT_NEAR(static_cast<double>(CacheDirectory(disk.path(), 0).most_bytes()),
              static_cast<double>(first.most_bytes()), 0.1 * kBlock);
}

TEST_F(CacheDirectoryTest, an_unwritable_directory_is_an_error) {
  using std::filesystem::perms;
  std::filesystem::permissions(directory_.path(), perms::owner_read | perms::owner_exec |
                                                      perms::others_read | perms::others_exec);
  std::string refused;
  {
    const AsNobody nobody;
    refused = message_of<RefusedError>([&] { CacheDirectory(directory_ / "cache", 0); });
  }
  std::filesystem::permissions(directory_.path(), perms::owner_all);
  expect_wording("data/cache_directory", "a place that cannot be written", refused);
}

}  // namespace lockstep::testing::cache_directory_test

#include "data/remote/host_shards.h"

#include <fcntl.h>
#include <fstream>
#include <future>
#include <sys/file.h>
#include <sys/stat.h>

#include "core/units.h"
#include "tests/data/distant.h"

namespace lockstep::testing::node_files_test {

// Whether a thread waits for the lock that `file` has: proc(5), /proc/locks.
bool is_waited_for(const Descriptor& file) {
  struct stat status {};
  EXPECT_EQ(fstat(file.number(), &status), 0);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);)
    if (line.find("-> FLOCK") != line.npos && line.find(str(':', status.st_ino, ' ')) != line.npos)
      return true;
  return false;
}

class HostShardsTest : public ::testing::Test {
 protected:
  HostShardsTest() {
    std::filesystem::create_directory(far_);
    manifest_ = write_numbered_shards(far_, 12);
    spit(far_ / "tokenizer.json", "{}");
    server_ = std::make_unique<BadServer>(far_);
  }
  std::string far(const std::string& name) const { return server_->url("plain/" + name); }
  HostShards files(std::int64_t most_bytes = 1 << 20) const {
    return HostShards({directory_ / "cache", most_bytes, 2, 0.2}, no_environment(),
                      quick_patience());
  }
  static std::string text(const ReadFile& file) { return read_text(file, 1 << 20); }

  TemporaryDirectory directory_{fast_directory()};
  std::filesystem::path far_ = directory_ / "far";
  Manifest manifest_;
  std::unique_ptr<BadServer> server_;
};

TEST_F(HostShardsTest, a_local_file_is_opened_once) {
  HostShards files({}, {});  // where a cache would be does not matter
  const auto path = (far_ / "3.bin").string();
  const auto one = files.open(path), two = files.open(path);
  EXPECT_EQ(text(one), slurp(path));
  EXPECT_EQ(text(two), slurp(path));
  EXPECT_EQ(one.path(), path);
  EXPECT_EQ(files.opened_local(), 1);
}

TEST_F(HostShardsTest, few_local_files_are_kept_open) {
  HostShards files({}, {});
  for (int i = 0; i < 300; ++i) {
    spit(directory_ / str(i), str(i));
    EXPECT_EQ(text(files.open(directory_ / str(i))), str(i));
  }
  EXPECT_EQ(files.opened_local(), 300);
  files.open(directory_ / "299");
  EXPECT_EQ(files.opened_local(), 300);
  files.open(directory_ / "0");  // not held any more
  EXPECT_EQ(files.opened_local(), 301);
}

TEST_F(HostShardsTest, opens_the_files_of_a_remote_dataset) {
  auto files = this->files();
  EXPECT_EQ(text(files.open(far("dataset.json"))), manifest_.dump());
  for (const char* name : {"0.bin", "0.ends", "11.bin", "11.ends", "5.bin", "5.bin"}) {
    const auto file = files.open(far(name));
    EXPECT_EQ(text(file), slurp(far_ / name)) << name;
    EXPECT_EQ(file.path(), far(name));
  }
  EXPECT_EQ(text(files.open(far("tokenizer.json"))), "{}");
  EXPECT_EQ(server_->requests("plain/dataset.json"), 1);
  EXPECT_EQ(server_->requests("plain/5.bin"), 1);
  EXPECT_EQ(files.counts().misses, 5);
  EXPECT_EQ(files.counts().hits, 1);
}

TEST_F(HostShardsTest, files_that_cannot_be_opened_are_an_error) {
  auto files = this->files();
  const auto none = (directory_ / "none").string(), directory = directory_.path().string();
  const auto refused = [&](const char* name, const std::string& path, const std::string& pin) {
    expect_refusal<DataError>("data/host_shards", name, {pin}, [&] { files.open(path); });
  };
  refused("no local file", none, none);
  refused("a local directory", directory, directory);
  refused("no dataset.json", server_->url("missing/0.bin"), "404");
}

TEST_F(HostShardsTest, creating_the_cache_blocks_no_other_thread) {
  auto files = this->files();
  std::filesystem::create_directory(directory_ / "cache");
  const auto name = directory_ / "cache" / "lock";
  const Descriptor held(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(flock(held.number(), LOCK_EX), 0);  // as a disk that does not answer
  auto opening = std::async(std::launch::async, [&] { return text(files.open(far("1.bin"))); });
  wait_until([&] { return is_waited_for(held); });
  auto counting = std::async(std::launch::async, [&] { return files.counts().misses; });
  EXPECT_EQ(counting.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  ASSERT_EQ(flock(held.number(), LOCK_UN), 0);
  EXPECT_EQ(opening.get(), slurp(far_ / "1.bin"));
  EXPECT_EQ(counting.get(), 0);
}

TEST_F(HostShardsTest, a_cache_that_is_created_after_stop_is_stopped) {
  auto files = this->files();
  ASSERT_NE(files.manifest(far("1.bin")), nullptr);
  files.stop();
  EXPECT_THROW(files.open(far("1.bin")), Error);
}

TEST_F(HostShardsTest, shards_ahead_are_fetched) {
  auto files = this->files();
  files.set_ahead(this, {far("1.bin"), (far_ / "2.bin").string(), far("1.ends"), far("2.bin")});
  wait_until([&] { return files.counts().fetched_bytes >= 2 * 1024 + 202 + 8 + 204; });
  for (const char* name : {"1.bin", "1.ends", "2.bin"})
    EXPECT_EQ(text(files.open(far(name))), slurp(far_ / name));
  EXPECT_EQ(server_->requests("plain/1.bin"), 1);
}

TEST_F(HostShardsTest, readers_keep_each_other_s_shards_ahead) {
  auto files = this->files(2 * PartFile::file_bytes(1024 + 2 * 111));
  const auto fetched = [&](std::int64_t count) {
    wait_until([&] { return files.counts().fetched >= count; });
    EXPECT_EQ(files.counts().fetched, count);
  };
  const int one = 0, two = 0;
  files.set_ahead(&one, {far("1.bin")});
  fetched(1);
  files.set_ahead(&two, {far("2.bin")});
  fetched(2);
  files.set_ahead(&one, {far("1.bin"), far("3.bin")});  // which do not fit
  usleep(300'000);
  for (const char* name : {"1.bin", "2.bin"})
    files.open(far(name));
  EXPECT_EQ(files.counts().hits, 2);
  files.set_ahead(&two, {});
  fetched(3);
  EXPECT_EQ(server_->requests("plain/2.bin"), 1);
}

TEST_F(HostShardsTest, finds_masks_and_returns_the_manifest) {
  const std::vector<std::uint8_t> mask = random_mask(300);
  auto manifest = write_dataset(far_, random_documents(300), 100, Boundary::front, mask);
  auto files = this->files();
  EXPECT_EQ(text(files.open(far("part_101.mask"))), slurp(far_ / "part_101.mask"));
  EXPECT_EQ(text(files.open(far("part_101.mask"))), slurp(far_ / "part_101.mask"));
  EXPECT_EQ(server_->requests("plain/part_101.mask"), 1);
  EXPECT_EQ(files.manifest(far("dataset.json"))->dump(), manifest.dump());
  EXPECT_EQ(files.manifest((far_ / "dataset.json").string()), nullptr);
  const auto shard = manifest.shards[0];
  EXPECT_EQ(files.room_of({server_->url("plain")}, 1) - PartFile::file_bytes(8 * shard.documents),
            PartFile::file_bytes(1024 + 200) + PartFile::file_bytes(13));
  EXPECT_EQ(server_->requests("plain/dataset.json"), 1);
}

TEST_F(HostShardsTest, computes_the_room_for_shards) {
  const auto room = [](int shards) {  // of the largest
    std::int64_t bytes = 0;
    for (int i = 12 - shards; i < 12; ++i)
      bytes += PartFile::file_bytes(1024 + 2 * (100 + i)) + PartFile::file_bytes(8);
    return bytes;
  };
  auto files = this->files(room(5));
  const auto url = server_->url("plain");
  files.need_room({{{url}, 5}});
  files.need_room({{{url}, 2}, {{directory_.path().string()}, 1000}, {{url + '/'}, 2}});
  // A number of shards of all paths of a source.
  files.need_room({{{url + "/3.bin", url + "/4.bin", "/local"}, 1000}});
  files.need_room({{{url + "/11.bin", url}, 4}});
  const auto expect_refused = [&](const char* name, std::initializer_list<std::string> pins,
                                  const std::vector<HostShards::Need>& needs) {
    expect_refusal<ConfigError>("data/host_shards", name, pins, [&] { files.need_room(needs); });
  };
  expect_refused("room of several needs", {"/plain: 3", "1.29 kB", "/1.bin: 1", "1.27 kB"},
                 {{{url}, 3}, {{url + "/1.bin"}, 3}, {{url}, 2}});
  expect_refused("room for one more",
                 {"/plain: 6", human_bytes(static_cast<double>(room(6))),
                  human_bytes(static_cast<double>(room(5))), "data.cache_bytes"},
                 {{{url}, 6}});
  expect_refused("room for all", {"/plain: 12"}, {{{url}, 1'000'000}});
  for (const char* name : {"11.bin", "11.ends"})
    EXPECT_EQ(server_->requests(str("plain/", name)), 0) << "nothing is fetched for it";
  EXPECT_EQ(files.room_of({url}, 1'000'000), room(12));
}

TEST(HostShards, the_default_directory_is_the_user_cache) {
  const auto directory = [](const Environment& environment) {
    return HostShards::default_directory(environment).string();
  };
  EXPECT_EQ(directory({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}), "/x/lockstep/shards");
  EXPECT_EQ(directory({{"HOME", "/h"}, {"XDG_CACHE_HOME", "x"}}), "/h/.cache/lockstep/shards");
  expect_refusal<ConfigError>("data/host_shards", "no home", {"data.cache_directory"},
                              [&] { directory({}); });
}

}  // namespace lockstep::testing::node_files_test

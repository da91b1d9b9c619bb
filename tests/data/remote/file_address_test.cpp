#include "data/remote/file_address.h"

#include <sys/stat.h>

#include "core/hash.h"
#include "data/shard_list.h"
#include "tests/data/distant.h"

namespace lockstep::testing::file_address_test {

TEST(FileAddress, has_a_path) {
  const auto path = [](const std::string& address) {
    return path_of_file_address(address).value_or("none").string();
  };
  EXPECT_EQ(path("file:///lustre/web/0.bin"), "/lustre/web/0.bin");
  EXPECT_EQ(path("file:/lustre/web/0.bin"), "/lustre/web/0.bin");
  EXPECT_EQ(path("file://localhost/lustre/web/0.bin"), "/lustre/web/0.bin");
  EXPECT_EQ(path("file:/0.bin"), "/0.bin");
  EXPECT_EQ(path("file:////lustre//web/../0.bin"), "//lustre//web/../0.bin");
  EXPECT_EQ(path("file:///my%20web/100%25%C3%a9#?/0.bin"), "/my web/100%\xc3\xa9#?/0.bin");
  EXPECT_EQ(path("file:///web/a%20b.bin"), "/web/a%20b.bin") << "a name is taken as written";
  EXPECT_EQ(path("s3://bucket/0.bin"), "none");
  EXPECT_EQ(path("/file:/0.bin"), "none");
}

TEST(FileAddress, of_another_host_or_a_relative_path_is_an_error) {
  for (const char* address :
       {"file://lustre/web/0.bin", "file://localhost.org/0.bin", "file:web/0.bin",
        "file:", "file://", "file://localhost", "file:///a%/0.bin", "file:///a%4/0.bin",
        "file:///a%g0/0.bin", "file:///a%0x/0.bin", "file:///a%00/0.bin"})
    expect_refusal<AccessError>("data/file_address", address, {address},
                                [&] { path_of_file_address(address); });
}

class FileReading : public ::testing::Test {
 protected:
  FileReading() { spit(path_, bytes_); }
  std::string read(ByteRange range, std::int64_t file_bytes) {
    std::string got;
    reader_.read("file:" + path_.string(), range, file_bytes, false,
                 [&](std::span<const std::byte> bytes, std::int64_t offset) {
                   EXPECT_EQ(offset, range.first + std::ssize(got));
                   got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                 });
    return got;
  }

  template <class E>
  void refused(const char* name, std::initializer_list<std::string> pins,
               std::int64_t file_bytes = kBytes) {
    expect_remote_refusal<E>("data/file_address", name, pins, [&] { read({0, 100}, file_bytes); });
  }

  static constexpr std::int64_t kBytes = 20'000'000;
  TemporaryDirectory directory_{fast_directory()};
  std::filesystem::path path_ = directory_ / "a.bin";
  std::string bytes_ = noise(kBytes);
  Remote remote_{no_environment(), quick_patience()};
  std::atomic<bool> stop_ = false;
  RemoteReader reader_{remote_, stop_};
};

TEST_F(FileReading, reads_ranges_and_whole_files) {
  for (const auto& [first, end] : {std::pair<std::int64_t, std::int64_t>{0, kBytes},
                                   {1000, 1001},
                                   {kBytes - 9'000'000, kBytes},
                                   {kBytes, kBytes}})
    EXPECT_TRUE(read({first, end}, kBytes) == bytes_.substr(static_cast<std::size_t>(first),
                                                            static_cast<std::size_t>(end - first)))
        << first;
  EXPECT_TRUE(reader_.read_all("file://" + path_.string(), kBytes) == bytes_);
}

TEST_F(FileReading, unreadable_files_are_errors) {
  const auto path = path_.string();
  refused<DataError>("another size", {path, "20000000", "20000001"}, kBytes + 1);
  stop_ = true;
  refused<AccessError>("a stop", {path});
  stop_ = false;
  ASSERT_EQ(chmod(path_.c_str(), 0), 0);
  std::string denied;
  {
    const AsNobody nobody;
    denied = message_of<RefusedError>([&] { read({0, 100}, kBytes); });
  }
  expect_contains(denied, path);
  expect_wording("data/file_address", "no permission", denied);
  std::filesystem::remove(path_);
  refused<DataError>("a missing file", {path});
}

class FileDataset : public ::testing::Test {
 protected:
  FileDataset() {
    std::filesystem::create_directory(far_);
    manifest_ = write_numbered_shards(far_, 12);
  }
  std::string far(const std::string& name) const {
    return "file://" + directory_.path().string() + "/a%20far/" + name;
  }
  HostShards files(std::int64_t most_bytes = 1 << 20) const {
    return HostShards({directory_ / "cache", most_bytes, 2, 0.2}, no_environment());
  }
  static std::string text(const ReadFile& file) { return read_text(file, 1 << 20); }

  TemporaryDirectory directory_{fast_directory()};
  std::filesystem::path far_ = directory_ / "a far";
  Manifest manifest_;
};

TEST_F(FileDataset, is_read_through_the_cache) {
  {
    auto files = this->files();
    for (const char* name : {"dataset.json", "0.bin", "0.ends", "11.bin", "5.bin", "5.bin"})
      EXPECT_EQ(text(files.open(far(name))), slurp(far_ / name)) << name;
    EXPECT_EQ(files.counts().fetched, 4);
    EXPECT_EQ(files.counts().hits, 1);
    EXPECT_EQ(files.counts().fetched_bytes, 3 * 1024 + 2 * (100 + 111 + 105) + 8);
    EXPECT_EQ(files.opened_local(), 0);
  }
  const auto before = slurp(far_ / "5.bin");
  std::filesystem::remove(far_ / "5.bin");
  auto again = files();  // another run
  EXPECT_EQ(text(again.open(far("5.bin"))), before);
  EXPECT_EQ(again.counts().fetched, 0);
}

TEST_F(FileDataset, needs_no_more_space_than_its_limit) {
  const auto most = 2 * PartFile::file_bytes(1024 + 2 * 111);
  auto files = this->files(most);
  for (int turn = 0; turn < 2; ++turn)
    for (int i = 0; i < 12; ++i)
      EXPECT_EQ(text(files.open(far(str(i, ".bin")))), slurp(far_ / str(i, ".bin")));
  EXPECT_EQ(files.counts().fetched, 24);
  std::int64_t held = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ / "cache"))
    held += static_cast<std::int64_t>(entry.file_size());
  EXPECT_LE(held, most);
}

TEST_F(FileDataset, a_changed_shard_is_refused_unless_dataset_json_changed_too) {
  text(files().open(far("3.bin")));
  const auto other = gpt2_shard(Tokens(103, 99));  // as many tokens
  spit(far_ / "3.bin", other);
  std::filesystem::remove(directory_ / "cache" / manifest_.shards[3].hash);
  auto files = this->files();
  expect_refusal<DataError>("data/file_address", "a changed shard",
                            {far("3.bin"), hash_hex(other), manifest_.shards[3].hash},
                            [&] { files.open(far("3.bin")); });
  manifest_.shards[3].hash = hash_hex(other);
  spit(far_ / kManifestName, manifest_.dump());
  EXPECT_EQ(text(this->files().open(far("3.bin"))), other);
}

TEST_F(FileDataset, has_the_fingerprint_of_its_path) {
  auto files = this->files();
  const auto local = list_shards(far_, files);
  for (const auto& address : {far(""), "file:" + far_.string(), "file://localhost" + far_.string()})
    EXPECT_EQ(list_shards(address, files).fingerprint, local.fingerprint) << address;
  EXPECT_EQ(list_shards(far("2.bin"), files).fingerprint,
            list_shards(far_ / "2.bin", files).fingerprint);
}

TEST_F(FileDataset, without_dataset_json_is_an_error) {
  std::filesystem::remove(far_ / kManifestName);
  auto files = this->files();
  expect_refusal<DataError>("data/file_address", "no dataset.json", {far_.string()},
                            [&] { list_shards(far(""), files); });
  expect_refusal<AccessError>("data/file_address", "a dataset of another host", {"file://lustre"},
                              [&] { list_shards("file://lustre/web", files); });
}

}  // namespace lockstep::testing::file_address_test

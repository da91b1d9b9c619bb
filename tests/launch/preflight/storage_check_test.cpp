#include "launch/preflight/storage_check.h"

#include <cmath>

#include "tests/launch/preflight/preflight_rig.h"
#include "tests/wording.h"

namespace lockstep::testing::storage_check_test {

namespace fs = std::filesystem;

// ActingWorld calls the next of `acts` before each exchange.
class ActingWorld final : public WorldOver {
 public:
  ActingWorld(World& under, std::vector<std::function<void()>> acts)
      : WorldOver(under), acts_(std::move(acts)) {}
  std::vector<std::string> exchange(const std::string& mine) override {
    if (meetings_ < acts_.size()) acts_[meetings_]();
    ++meetings_;
    return under_.exchange(mine);
  }

 private:
  std::vector<std::function<void()>> acts_;
  std::size_t meetings_ = 0;
};

// Files in the directory that this process has open, also unlinked ones.
std::vector<fs::path> open_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // the descriptor of the iterator
    const auto target = fs::read_symlink(entry.path(), closed).string();
    if (target.starts_with(folder.string() + "/")) files.push_back(entry.path());
  }
  return files;
}

// Findings of check_storage() if act(FILE) is called between its write and its read.
std::vector<Finding> found_when(const std::function<void(const fs::path&)>& act, int ranks = 1,
                                double most_seconds = 600) {
  const TemporaryDirectory scratch;
  LoneRank lone(ranks);
  ActingWorld world(lone.world, {[] {},
                                 [&] {
                                   EXPECT_TRUE(fs::is_empty(scratch.path()))
                                       << "a process that is killed here leaves it";
                                   for (const auto& file : open_files(scratch.path()))
                                     act(file);
                                 }});
  PreflightRank rank{world, lone.topology, lone.comms, lone.compute, nullptr, {}};
  const auto rates = check_storage(rank, scratch.path(), most_seconds);
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  EXPECT_EQ(rank.findings.size(), 2u);
  EXPECT_EQ(rates.write, rank.findings[0].value);
  EXPECT_EQ(rates.read > 0, rank.findings[1].failure.empty());
  return rank.findings;
}

TEST(StorageCheck, the_file_of_a_node_is_divided_among_its_ranks) {
  constexpr std::size_t kMiB = 1 << 20;
  for (const auto& [ranks, mib] : {std::pair{1, 128}, {3, 40}, {64, 8}}) {
    SCOPED_TRACE(str(ranks, " ranks"));
    std::size_t bytes = 0;
    const auto found =
        found_when([&](const fs::path& file) { bytes = fs::file_size(file); }, ranks);
    EXPECT_EQ(bytes, static_cast<std::size_t>(mib) * kMiB);
    for (const Finding& one : found) {
      EXPECT_EQ(one.failure, "") << one.check;
      EXPECT_GT(one.value, 0) << one.check;
      EXPECT_EQ(one.tolerance, 0.5) << one.check;
      expect_contains(one.of, str(ranks, ranks == 1 ? " rank" : " ranks", " on the host, "));
      EXPECT_EQ(one.of.find("device "), one.of.npos)
          << "a number, another at each mount: " << one.of;
    }
  }
}

TEST(StorageCheck, slow_storage_is_measured_with_a_smaller_file) {
  std::uintmax_t bytes = 0;
  const auto found = found_when([&](const fs::path& file) { bytes = fs::file_size(file); }, 1, 0);
  EXPECT_EQ(bytes, std::uintmax_t{4} << 20);
  for (const Finding& one : found) {
    EXPECT_EQ(one.failure, "") << one.check;
    EXPECT_GT(one.value, 0) << one.check;
  }
}

TEST(StorageCheck, a_read_that_differs_from_the_write_is_a_fault) {
  const auto flipped = found_when([](const fs::path& file) { flip(file, 5'000'000, 3); }, 16);
  EXPECT_EQ(flipped[0].failure, "");
  const auto& failure = flipped[1].failure;
  expect_wording("launch/preflight_checks", "other bytes", failure.substr(failure.find(": ")));
  EXPECT_FALSE(flipped[1].is_wrong_configuration);
  const auto cut = found_when([](const fs::path& file) { fs::resize_file(file, 1 << 20); }, 16);
  EXPECT_NE(cut[1].failure, "");
}

TEST(StorageCheck, a_missing_directory_is_a_configuration_error) {
  const TemporaryDirectory directory;
  LoneRank lone;
  const auto rates = check_storage(lone.rank, directory / "nowhere");
  EXPECT_EQ(rates.write, 0);
  EXPECT_EQ(rates.read, 0);
  const auto& found = lone.rank.findings;
  ASSERT_EQ(found.size(), 2u);
  expect_contains(found[0].failure, str("--scratch ", (directory / "nowhere").string()));
  EXPECT_TRUE(found[0].is_wrong_configuration);
  for (const Finding& one : found)
    expect_wording("launch/preflight_checks", str("no folder: ", one.check), one.failure);
}

}  // namespace lockstep::testing::storage_check_test

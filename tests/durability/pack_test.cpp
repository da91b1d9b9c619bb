// Packing on a disk that loses unsynced data, and with failing calls.
#include "data/pack/pack.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "data/pack/verify.h"
#include "tests/captured.h"
#include "tests/durability/disk.h"
#include "tests/files.h"

namespace lockstep::testing::pack_test {

namespace fs = std::filesystem;

class PackDurability : public ::testing::TestWithParam<double> {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 12; ++i)
      text += str("document ", i, "\n\n");
    spit(input_ / "text", text);
  }
  PackOptions options(const Disk& disk) {
    return {.inputs = {input_ / "text"},
            .out = disk.root() / "new/dataset",
            .document_separator = "\n\n",
            .validation_share = GetParam(),
            .shard_tokens = 60};
  }
  // Returns whether the datasets exist. Fails if they exist and are damaged.
  bool is_there(const fs::path& root) {
    if (!fs::exists(root / "new/dataset")) return false;
    for (const char* name : {"train", "validation"}) {
      const auto found =
          verify(GetParam() > 0 ? root / "new/dataset" / name : root / "new/dataset");
      EXPECT_EQ(found.damages, std::vector<std::string>{});
      EXPECT_TRUE(found.hashed);
    }
    return true;
  }
  // The names of the files in the dataset.
  static std::set<std::string> names(const fs::path& root) {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(root / "new/dataset"))
      names.insert(fs::relative(entry.path(), root));
    return names;
  }
  // Files that do not have their final names yet.
  static std::vector<fs::path> unfinished(const fs::path& root) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(root))
      if (entry.path().filename().string().find(".tmp-") != std::string::npos)
        files.push_back(entry.path());
    return files;
  }
  TemporaryDirectory input_, directory_, rest_;
};

TEST_P(PackDurability, after_a_power_loss_a_dataset_is_complete_or_absent) {
  Disk disk(directory_.path());
  std::map<std::string, std::string> manifests;
  for (const auto& packed : pack(options(disk)))
    manifests[packed.path.filename()] = packed.manifest.dump();
  EXPECT_GT(disk.calls().size(), 50u);
  at_every_moment(disk, rest_ / "rest", [&](std::size_t calls, const fs::path& rest) {
    const bool there = is_there(rest);
    EXPECT_TRUE(there || calls < disk.calls().size());
    if (there || (calls % 3 != 0 && unfinished(rest).empty())) return;
    // The same call resumes from these files, or starts again.
    const TemporaryDirectory again(fast_directory());
    fs::copy(rest, again.path(), fs::copy_options::recursive);
    for (const auto& file : unfinished(again.path()))  // as if another process had begun them
      fs::rename(file, file.string() + "0");
    auto o = options(disk);
    o.out = again / "new/dataset";
    for (const auto& packed : pack(o))
      EXPECT_EQ(packed.manifest.dump(), manifests.at(packed.path.filename()));
    EXPECT_TRUE(is_there(again.path()));
    EXPECT_EQ(names(again.path()), names(disk.root()));
    EXPECT_FALSE(fs::exists(again / "new/dataset.tmp"));
  });
}

TEST_P(PackDurability, if_any_call_fails_the_dataset_is_complete_or_packing_fails) {
  for (std::size_t k = 0;; ++k) {
    SCOPED_TRACE(str("call ", k, " fails"));
    const TemporaryDirectory directory(fast_directory());
    Disk disk(directory.path());
    disk.fail(k, k % 2 == 0 ? EIO : ENOSPC);
    bool said = false;
    const auto log = stderr_of([&] {
      try {
        pack(options(disk));
      } catch (const Error& error) {
        said = true;
        EXPECT_EQ(error.exit_code(), 74) << error.what();
      }
    });
    const auto warning = log.find("warning: ");
    const bool warned = log.find("dataset.tmp: ", warning) != std::string::npos;
    if (disk.calls().size() <= k) break;  // packing has fewer calls
    for (const auto loss : Disk::kLosses) {
      write_rest(disk.rest(disk.calls().size(), loss), rest_ / "rest");
      EXPECT_TRUE(is_there(rest_ / "rest") || said);
    }
    if (fs::exists(disk.root() / "new"))
      for (const auto& entry : fs::directory_iterator(disk.root() / "new")) {
        EXPECT_TRUE(entry.path().filename() == "dataset" ||
                    ((said || warned) && entry.path().filename() == "dataset.tmp"));
      }
    if (HasFailure()) FAIL() << "the call was on " << disk.calls().at(k).path;
  }
}

INSTANTIATE_TEST_SUITE_P(share, PackDurability, ::testing::Values(0, 0.3),
                         [](const auto& p) { return p.param > 0 ? "with_validation" : "alone"; });

}  // namespace lockstep::testing::pack_test

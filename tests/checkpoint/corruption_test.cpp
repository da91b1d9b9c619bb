// Every kind of damage to the newest checkpoint is found, and the previous one is loaded.
#include <algorithm>
#include <cstring>
#include <random>

#include "checkpoint/checkpointer.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"
#include "tests/wording.h"

namespace lockstep::testing::corruption_test {

namespace fs = std::filesystem;

constexpr int kRanks = 2;
constexpr char kManifest[] = "manifest.json";
const std::vector<std::string> kRankFiles = {"rank-00000.safetensors", "rank-00001.safetensors"};

// Steps 1 and 2, saved by two ranks that own eight rows each; one rank loads.
class Corruption : public ::testing::Test {
 protected:
  Corruption() {
    for (const auto& [name, dtype] :
         {std::pair{"w", DType::bf16}, std::pair{"w/adam_m", DType::fp32},
          std::pair{"flags", DType::uint8}})
      state_.push_back(whole_slice(name, bench_.poisoned({kRanks * 8, 128}, dtype)));
    save(1);
    for (const auto& slice : state_)
      saved_.push_back(bytes_of(slice));
    save(2);
    for (const auto& entry : fs::directory_iterator(path(2)))
      whole_[entry.path().filename()] = slurp(entry.path());
    ::testing::internal::CaptureStderr();
  }
  void save(std::int64_t step) {
    for (const auto& slice : state_)
      for (std::int64_t i = 0; i < slice.local.bytes(); ++i)
        slice.local.data[i] =
            static_cast<std::byte>(philox(static_cast<std::uint64_t>(step), purpose_of(slice.name),
                                          static_cast<std::uint64_t>(i))[0]);
    run_thread_ranks(kRanks, [&](World& world) {
      std::vector<StateSlice> mine;
      for (const auto& slice : state_) {
        const auto rows = slice.local.rows(8 * world.rank(), 8);
        mine.push_back({slice.name,
                        slice.whole,
                        {0, kRanks, 8},
                        {world.rank(), 0, rows.elements()},
                        rows.view({rows.elements()})});
      }
      Checkpointer(path(), mine, {}, &world).save(step, Json(step));
    });
  }
  static std::string bytes_of(const StateSlice& slice) {
    return {reinterpret_cast<const char*>(slice.local.data),
            static_cast<std::size_t>(slice.local.bytes())};
  }
  static std::size_t header_bytes(const std::string& rank_file) {
    std::uint64_t json = 0;
    std::memcpy(&json, rank_file.data(), 8);
    return 8 + json;
  }
  fs::path path() const { return directory_.path(); }
  fs::path path(std::int64_t step) const { return checkpoint_path(path(), step); }

  // The files of step 2 on disk are damaged.
  void expect_found(const std::string& what, Depth depth = Depth::contents) {
    ++damages_;
    for (const auto& slice : state_)
      std::memset(slice.local.data, 0xff, static_cast<std::size_t>(slice.local.bytes()));
    EXPECT_THROW(verify_checkpoint(path(2), depth), DataError) << what;
    const auto about = Checkpointer(path(), state_).load_newest([](const Json&) {});
    EXPECT_EQ(about->as_integer(), 1) << what;
    for (std::size_t i = 0; i < state_.size(); ++i)
      EXPECT_TRUE(bytes_of(state_[i]) == saved_[i]) << what << ": " << state_[i].name;
  }
  void expect_found(const std::string& file, const std::string& bytes, const std::string& what,
                    Depth depth = Depth::contents) {
    spit(path(2) / file, bytes);
    expect_found(file + ": " + what, depth);
  }
  void mend(const std::string& file) { spit(path(2) / file, whole_.at(file)); }

  void TearDown() override {
    EXPECT_EQ(Checkpointer(path(), state_).load_newest([](const Json&) {})->as_integer(), 2);
    const auto said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), damages_);  // a warning for each
  }

  TemporaryDirectory directory_;
  Bench bench_;
  std::vector<StateSlice> state_;
  std::vector<std::string> saved_;            // state of step 1
  std::map<std::string, std::string> whole_;  // the files of step 2
  int damages_ = 0;
};

// All bits of one header, and one bit of each byte of the other header and of the manifest. Tests
// of the manifest flip all of its bits.
TEST_F(Corruption, in_any_byte_of_the_manifest_or_bit_of_a_header_is_found) {
  for (const auto& [file, whole] : whole_) {
    auto bytes = whole;
    const bool all_bits = file == kRankFiles[0];
    const auto end = file == kManifest ? whole.size() : header_bytes(whole);
    for (std::size_t i = 0; i < end; ++i)
      for (std::size_t bit = all_bits ? 0 : i % 8; bit < 8; bit += all_bits ? 1 : 8) {
        bytes[i] = static_cast<char>(whole[i] ^ (1 << bit));
        expect_found(file, bytes, str("bit ", bit, " of byte ", i));
        bytes[i] = whole[i];
      }
    mend(file);
  }
}

TEST_F(Corruption, in_a_thousand_bits_of_tensors_is_found) {
  std::mt19937_64 random(1);
  for (int k = 0; k < 1000; ++k) {
    const auto& file = kRankFiles[random() % kRankFiles.size()];
    auto bytes = whole_.at(file);
    const auto header = header_bytes(bytes);
    const auto i = header + random() % (bytes.size() - header);
    const auto bit = static_cast<int>(random() % 8);
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
    expect_found(file, bytes, str("bit ", bit, " of byte ", i));
    mend(file);
  }
}

TEST_F(Corruption, by_missing_and_extra_bytes_is_found) {
  std::mt19937_64 random(2);
  for (const auto& [file, whole] : whole_) {
    const auto header = file == kManifest ? whole.size() : header_bytes(whole);
    for (std::size_t n = 0; n < header; ++n)
      expect_found(file, whole.substr(0, n), str(n, " bytes"), Depth::sizes);
    for (int k = 0; k < 64 && file != kManifest; ++k) {
      const auto n = header + random() % (whole.size() - header);
      expect_found(file, whole.substr(0, n), str(n, " bytes"), Depth::sizes);
    }
    for (const auto& more : {std::string("x"), std::string(4096, '\0'), whole})
      expect_found(file, whole + more, str(more.size(), " more"), Depth::sizes);
    mend(file);
  }
}

TEST_F(Corruption, by_blocks_of_zeros_is_found) {
  for (const auto& [file, whole] : whole_) {
    for (const std::size_t block : {512u, 4096u})
      for (std::size_t at = 0; at < whole.size(); at += block) {
        auto bytes = whole;
        const auto count = std::min(block, whole.size() - at);
        bytes.replace(at, count, count, '\0');
        expect_found(file, bytes, str(count, " zeros at byte ", at));
      }
    expect_found(file, std::string(whole.size(), '\0'), "zeros");
    mend(file);
  }
}

TEST_F(Corruption, by_absent_files_is_found) {
  for (const auto& [file, whole] : whole_) {
    fs::remove(path(2) / file);
    expect_found(file, Depth::sizes);
    fs::create_directory(path(2) / file);
    expect_found(file + " is a directory", Depth::sizes);
    fs::remove(path(2) / file);
    mend(file);
  }
  for (const auto& [file, whole] : whole_)
    fs::remove(path(2) / file);
  expect_found("all", Depth::sizes);
  for (const auto& [file, whole] : whole_)
    mend(file);
}

TEST_F(Corruption, by_swapped_and_stale_files_is_found) {
  expect_found(kRankFiles[0], whole_.at(kRankFiles[1]), "another rank's");
  expect_found(kRankFiles[1], whole_.at(kRankFiles[0]), "both are swapped");
  mend(kRankFiles[0]);
  expect_found(kRankFiles[1], whole_.at(kRankFiles[0]), "another rank's");
  mend(kRankFiles[1]);
  for (const auto& [file, whole] : whole_) {
    expect_found(file, slurp(path(1) / file), "of step 1");
    mend(file);
  }
  for (const auto& [file, whole] : whole_)
    spit(path(2) / file, slurp(path(1) / file));
  expect_found("all are of step 1");
  expect_refusal<DataError>("checkpoint/checkpointer", "a manifest of another step", {"step 1"},
                            [&] { verify_checkpoint(path(2) / "", Depth::sizes); });
  for (const auto& [file, whole] : whole_)
    mend(file);
}

}  // namespace lockstep::testing::corruption_test

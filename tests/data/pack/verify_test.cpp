#include "data/pack/verify.h"

#include <gtest/gtest.h>

#include "tests/data/shards.h"

namespace lockstep::testing::verify_test {

namespace fs = std::filesystem;

using Damages = std::vector<std::string>;

class VerifyTest : public DirectoryTest {
 protected:
  void write_ours() { write_dataset(directory_ / "d", tokens_, 100); }
  Damages damages(const std::string& name = "d") const { return verify(directory_ / name).damages; }
  // Expects this number of damages, each with its file and place.
  void expect_damages(const std::string& name, const Damages& pins,
                      const std::string& dataset = "d") const {
    const auto found = damages(dataset);
    ASSERT_EQ(found.size(), pins.size()) << name;
    for (std::size_t i = 0; i < found.size(); ++i) {
      expect_contains(found[i], pins[i]);
      expect_wording("data/verify", i == 0 ? name : str(name, ", ", i), found[i]);
    }
  }
  void flip_in(const std::string& name, std::size_t byte, int bit) const {
    flip(directory_ / name, byte, bit);
  }

  const Tokens tokens_ = random_documents(250);
};

TEST_F(VerifyTest, what_is_whole_is_found_whole_and_every_flipped_bit_is_found) {
  for (const auto boundary : {Boundary::front, Boundary::listed}) {
    write_dataset(directory_ / "d", tokens_, 100, boundary, random_mask(250));
    const auto found = verify(directory_ / "d");
    EXPECT_EQ(found.damages, Damages{});
    EXPECT_TRUE(found.hashed);
    EXPECT_EQ(found.shards, 3);
    EXPECT_EQ(found.tokens, 250);
    std::mt19937_64 random(3);
    for (int round = 0; round < 60; ++round) {
      constexpr const char* kKinds[] = {".bin", ".ends", ".mask"};
      const std::string name = str("d/part_10", random() % 3, kKinds[round % 3]);
      const auto byte = random() % fs::file_size(directory_ / name);
      const auto bit = static_cast<int>(random() % 8);
      flip_in(name, byte, bit);
      const auto damaged = damages();
      ASSERT_EQ(damaged.size(), 1u) << name;
      expect_contains(damaged[0], name);
      flip_in(name, byte, bit);
    }
  }
}

TEST_F(VerifyTest, all_damage_is_listed) {
  write_ours();
  flip_in("d/part_100.bin", 1'030, 0);
  flip_in("d/part_101.ends", 0, 7);
  fs::resize_file(directory_ / "d/part_102.bin", 1'100);
  expect_damages("three files",
                 {"part_100.bin: ", "part_101.ends: ", "part_102.bin: at byte 1100: "});
}

TEST_F(VerifyTest, foreign_pairs_are_checked_with_their_lists) {
  write_megatron(directory_ / "m/a", {{1, 2, 3}, {4, 5}}, 4, 4);
  EXPECT_EQ(damages("m"), Damages{});
  EXPECT_EQ(verify(directory_ / "m").tokens, 5);
  flip_in("m/a.bin", 11, 7);  // the sign of the third
  expect_damages("negative id", {"a.bin: at byte 8: token 2 is -21474836"}, "m");
  write_datatrove(directory_ / "t/a", {{1, 2, 3}, {4, 5}, {6}});
  EXPECT_EQ(damages("t"), Damages{});
  write("t/a.ds.index", u64s({3, 2, 6}));
  expect_damages("ends that fall, of datatrove", {"a.ds.index: at byte 8: "}, "t");
}

TEST_F(VerifyTest, a_token_outside_the_vocabulary_is_reported_with_its_byte) {
  write_ours();
  flip_in("d/part_101.bin", 1'024 + 2 * 7 + 1, 6);
  expect_damages("token outside the vocabulary", {"part_101.bin: at byte 1038: token 7 "});
}

TEST_F(VerifyTest, shards_without_hashes_are_checked_by_their_headers) {
  for (const char* name : {"a", "b", "c"})
    write(str("d/", name, ".bin"), gpt2_shard(random_tokens(100, 50257)));
  EXPECT_EQ(damages(), Damages{});
  EXPECT_FALSE(verify(directory_ / "d").hashed);
  fs::resize_file(directory_ / "d/a.bin", 1'100);
  fs::resize_file(directory_ / "d/c.bin", 1'200);
  write("d/e.bin", gpt2_shard({1, 2, 50257}));
  expect_damages(
      "without hashes",
      {"a.bin: at byte 1100: ", "c.bin: at byte 1200: ", "e.bin: at byte 1028: token 2 "});
  EXPECT_EQ(verify(directory_ / "d").shards, 4);
  EXPECT_EQ(verify(directory_ / "d").tokens, 103);
  for (const char* name : {"b", "e"})
    fs::remove(directory_ / "d" / str(name, ".bin"));
  EXPECT_EQ(damages().size(), 2u) << "though no shard is whole";
}

// The hash agrees, the list does not rise: who wrote it was wrong.
TEST_F(VerifyTest, a_decreasing_list_of_ends_is_found_although_its_hash_matches) {
  auto manifest = write_dataset(directory_ / "d", tokens_, 250);
  auto ends = slurp(directory_ / "d/part_100.ends");
  std::swap(ends[0], ends[8]);
  write("d/part_100.ends", ends);
  manifest.shards[0].ends_hash = hash_hex(ends);
  write_manifest(directory_ / "d", manifest);
  expect_damages("ends that fall", {"part_100.ends: at byte 8: "});
}

TEST_F(VerifyTest, a_missing_shard_file_is_damage_and_a_missing_manifest_is_an_error) {
  write_dataset(directory_ / "d", tokens_, 100, Boundary::front, random_mask(250));
  fs::remove(directory_ / "d/part_101.bin");
  fs::remove(directory_ / "d/part_102.mask");
  expect_damages("missing files", {"part_101.bin: ", "part_102.mask: "});
  write("d/dataset.json", "{}");
  EXPECT_THROW(damages(), DataError);
  fs::remove(directory_ / "d/dataset.json");
  expect_refusal<DataError>("data/verify", "no manifest", {"dataset.json"}, [&] { damages(); });
  EXPECT_THROW(damages("nowhere"), DataError);
}

// Files of which one cannot be had, for a reason that is none of its bytes.
template <class E>
class Without final : public ShardFiles {
 public:
  explicit Without(std::string name) : name_(std::move(name)) {}
  ReadFile open(const std::string& path) override {
    if (path.ends_with(name_)) throw E(path + ": not now");
    return ReadFile(path.substr(path.find('/')));  // without file:
  }

 private:
  std::string name_;
};

TEST_F(VerifyTest, the_tokenizer_in_dataset_json_must_be_beside_it) {
  auto manifest = write_dataset(directory_ / "d", tokens_, 100);
  EXPECT_EQ(damages(), Damages{}) << "bytes need none";
  manifest.format.name = "words";
  manifest.tokenizer_hash = hash_hex("{}");
  write_manifest(directory_ / "d", manifest);
  expect_damages("no tokenizer", {"d/tokenizer.json: "});
  EXPECT_EQ(verify(directory_ / "d").tokens, 250) << "the shards are looked at all the same";
  write("d/tokenizer.json", "{}");
  EXPECT_EQ(damages(), Damages{});
  Without<RefusedError> refused("tokenizer.json");
  EXPECT_EQ(verify(directory_ / "d", &refused).damages, Damages{});
  EXPECT_TRUE(verify("file:" + (directory_ / "d").string(), &refused).ended) << "it exists";
  manifest.tokenizer_hash = "";
  write_manifest(directory_ / "d", manifest);
  fs::remove(directory_ / "d/tokenizer.json");
  EXPECT_EQ(damages(), Damages{}) << "where it is not known which";
}

TEST_F(VerifyTest, an_access_error_is_not_damage_and_earlier_damage_is_kept) {
  write_ours();
  flip_in("d/part_100.bin", 1'030, 0);
  const auto check = [&](ShardFiles& files, int code) {
    const auto found = verify(directory_ / "d", &files);
    ASSERT_EQ(found.damages.size(), 1u);
    expect_contains(found.damages[0], "part_100.bin: ");
    EXPECT_EQ(found.shards, 1);
    ASSERT_TRUE(found.ended);
    try {
      std::rethrow_exception(found.ended);
    } catch (const AccessError& error) {
      expect_contains(error.what(), "not now");
      EXPECT_EQ(error.exit_code(), code);
    }
  };
  for (const char* name : {"part_101.bin", "part_101.ends"}) {
    Without<UnreachableError> unreachable(name);
    check(unreachable, 75);
    Without<RefusedError> refused(name);
    check(refused, 77);
    Without<AccessError> closed(name);
    check(closed, 65);
    Without<DataError> missing(name);
    const auto found = verify(directory_ / "d", &missing);
    EXPECT_FALSE(found.ended);
    EXPECT_EQ(found.damages.size(), 2u);
    EXPECT_EQ(found.shards, 3);
  }
}

TEST_F(VerifyTest, shards_without_permission_are_not_damage) {
  for (const char* name : {"a", "b"})
    write(str("d/", name, ".bin"), gpt2_shard(random_tokens(100, 50257)));
  fs::permissions(directory_.path(), fs::perms::all);
  fs::permissions(directory_ / "d/b.bin", fs::perms::none);
  const AsNobody nobody;
  const auto found = verify(directory_ / "d");
  EXPECT_EQ(found.damages, Damages{});
  EXPECT_TRUE(found.ended);
}

}  // namespace lockstep::testing::verify_test

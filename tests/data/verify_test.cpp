#include "data/verify.h"

#include <gtest/gtest.h>

#include "tests/data/shards.h"

namespace lockstep::testing::verify_test {

class VerifyTest : public ::testing::Test {
 protected:
  void write() { write_dataset(directory_ / "d", tokens_, 100); }
  std::vector<std::string> damages() const { return verify(directory_ / "d").damages; }
  // Flips bit `bit` of byte `byte` of a file.
  void flip(const std::string& name, std::size_t byte, int bit) const {
    auto bytes = slurp(directory_ / name);
    bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
    spit(directory_ / name, bytes);
  }

  const Tokens tokens_ = random_documents(250);
  TemporaryDirectory directory_;
};

TEST_F(VerifyTest, what_is_whole_is_found_whole) {
  for (const auto boundary : {Boundary::front, Boundary::listed}) {
    write_dataset(directory_ / "d", tokens_, 100, boundary);
    const auto found = verify(directory_ / "d");
    EXPECT_TRUE(found.damages.empty()) << found.damages[0];
    EXPECT_TRUE(found.hashed);
    EXPECT_EQ(found.shards, 3);
    EXPECT_EQ(found.tokens, 250);
  }
}

TEST_F(VerifyTest, every_flipped_bit_is_found) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    write();
    const std::string name = str("d/part_10", random() % 3, round % 2 == 0 ? ".bin" : ".ends");
    const auto size = std::filesystem::file_size(directory_ / name);
    flip(name, random() % size, static_cast<int>(random() % 8));
    const auto found = damages();
    ASSERT_EQ(found.size(), 1u) << name;
    expect_contains(found[0], name);
  }
}

TEST_F(VerifyTest, all_damage_is_listed_not_only_the_first) {
  write();
  flip("d/part_100.bin", 1'030, 0);
  flip("d/part_101.ends", 0, 7);
  std::filesystem::resize_file(directory_ / "d/part_102.bin", 1'100);
  const auto found = damages();
  ASSERT_EQ(found.size(), 3u);
  expect_contains(found[0], "part_100.bin: the XXH3-128 of its bytes is");
  expect_contains(found[1], "part_101.ends");
  expect_contains(found[2], "part_102.bin: at byte 1100: truncated");
}

TEST_F(VerifyTest, every_flipped_bit_of_a_mask_is_found) {
  const auto mask = random_mask(250);
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    write_dataset(directory_ / "d", tokens_, 100, Boundary::front, mask);
    EXPECT_EQ(damages(), std::vector<std::string>{});
    const std::string name = str("d/part_10", random() % 3, ".mask");
    flip(name, random() % std::filesystem::file_size(directory_ / name),
         static_cast<int>(random() % 8));
    const auto found = damages();
    ASSERT_EQ(found.size(), 1u) << name;
    expect_contains(found[0], name);
  }
  std::filesystem::remove(directory_ / "d/part_101.mask");
  write_dataset(directory_ / "d", tokens_, 100, Boundary::front, mask);
  std::filesystem::remove(directory_ / "d/part_101.mask");
  ASSERT_EQ(damages().size(), 1u);
  expect_contains(damages()[0], "part_101.mask: cannot open");
}

TEST_F(VerifyTest, pairs_of_others_are_checked_with_their_lists) {
  std::filesystem::create_directories(directory_ / "m");
  write_megatron(directory_ / "m/a", {{1, 2, 3}, {4, 5}}, 4, 4);
  EXPECT_EQ(verify(directory_ / "m").damages, std::vector<std::string>{});
  EXPECT_EQ(verify(directory_ / "m").tokens, 5);
  flip("m/a.bin", 11, 7);  // the sign of the third
  ASSERT_EQ(verify(directory_ / "m").damages.size(), 1u);
  expect_contains(verify(directory_ / "m").damages[0], "a.bin: at byte 8: token 2 is -21474836");
  std::filesystem::create_directories(directory_ / "t");
  write_datatrove(directory_ / "t/a", {{1, 2, 3}, {4, 5}, {6}});
  EXPECT_EQ(verify(directory_ / "t").damages, std::vector<std::string>{});
  spit(directory_ / "t/a.ds.index", u64s({3, 2, 6}));
  ASSERT_EQ(verify(directory_ / "t").damages.size(), 1u);
  expect_contains(verify(directory_ / "t").damages[0], "a.ds.index: at byte 8");
}

TEST_F(VerifyTest, a_token_outside_the_vocabulary_is_named_by_its_byte) {
  write();
  flip("d/part_101.bin", 1'024 + 2 * 7 + 1, 6);
  const auto found = damages();
  ASSERT_EQ(found.size(), 1u);
  expect_contains(found[0], "part_101.bin: at byte 1038: token 7 is");
}

TEST_F(VerifyTest, all_damage_of_shards_without_hashes_is_listed_too) {
  std::filesystem::create_directories(directory_ / "d");
  for (const char* name : {"a", "b", "c", "e"})
    spit(directory_ / "d" / str(name, ".bin"), gpt2_shard(random_tokens(100, 50257)));
  std::filesystem::resize_file(directory_ / "d/a.bin", 1'100);
  std::filesystem::resize_file(directory_ / "d/c.bin", 1'200);
  spit(directory_ / "d/e.bin", gpt2_shard({1, 2, 50257}));
  const auto found = verify(directory_ / "d");
  EXPECT_EQ(found.shards, 4);
  EXPECT_EQ(found.tokens, 103);
  ASSERT_EQ(found.damages.size(), 3u);
  expect_contains(found.damages[0], "a.bin: at byte 1100: truncated");
  expect_contains(found.damages[1], "c.bin: at byte 1200: truncated");
  expect_contains(found.damages[2], "e.bin: at byte 1028: token 2 is 50257");
  for (const char* name : {"b", "e"})
    std::filesystem::remove(directory_ / "d" / str(name, ".bin"));
  EXPECT_EQ(damages().size(), 2u) << "though no shard is whole";
}

// The hash agrees, the list does not rise: who wrote it was wrong.
TEST_F(VerifyTest, a_list_of_ends_that_falls_is_found_though_its_hash_agrees) {
  auto manifest = write_dataset(directory_ / "d", tokens_, 250);
  auto ends = slurp(directory_ / "d/part_100.ends");
  std::swap(ends[0], ends[8]);
  spit(directory_ / "d/part_100.ends", ends);
  manifest.shards[0].ends_hash = hash_hex(ends);
  spit(directory_ / "d/dataset.json", manifest.dump());
  const auto found = damages();
  ASSERT_EQ(found.size(), 1u);
  expect_contains(found[0], "part_100.ends: at byte 8: a document ends at token");
}

TEST_F(VerifyTest, a_missing_shard_is_damage_a_missing_manifest_is_an_error) {
  write();
  std::filesystem::remove(directory_ / "d/part_101.bin");
  ASSERT_EQ(damages().size(), 1u);
  expect_contains(damages()[0], "part_101.bin: cannot open");
  spit(directory_ / "d/dataset.json", "{}");
  EXPECT_THROW(damages(), DataError);
  std::filesystem::remove(directory_ / "d/dataset.json");
  expect_contains(message_of<DataError>([&] { damages(); }), "dataset.json is missing");
  EXPECT_THROW(verify(directory_ / "nowhere"), DataError);
}

// Files of which one cannot be had, for a reason that is none of its bytes.
template <class E>
class Without final : public ShardFiles {
 public:
  explicit Without(std::string name) : name_(std::move(name)) {}
  ReadFile open(const std::string& path) override {
    if (path.ends_with(name_)) throw E(path + ": not now");
    return ReadFile(path);
  }

 private:
  std::string name_;
};

TEST_F(VerifyTest, the_tokenizer_that_dataset_json_names_must_lie_beside_it) {
  auto manifest = write_dataset(directory_ / "d", tokens_, 100);
  EXPECT_EQ(damages(), std::vector<std::string>{}) << "bytes need none";
  manifest.format.name = "words";
  manifest.tokenizer_hash = hash_hex("{}");
  spit(directory_ / "d/dataset.json", manifest.dump());
  spit(directory_ / "d/tokenizer.json", "{}");
  EXPECT_EQ(damages(), std::vector<std::string>{});
  std::filesystem::remove(directory_ / "d/tokenizer.json");
  ASSERT_EQ(damages().size(), 1u);
  expect_contains(damages()[0], "tokenizer.json: is missing");
  expect_contains(damages()[0], str("of words (", manifest.tokenizer_hash, ")"));
  EXPECT_EQ(verify(directory_ / "d").tokens, 250) << "the shards are looked at all the same";
  Without<RefusedError> refused("tokenizer.json");
  spit(directory_ / "d/tokenizer.json", "{}");
  EXPECT_EQ(verify(directory_ / "d", &refused).damages, std::vector<std::string>{});
  manifest.tokenizer_hash = "";
  spit(directory_ / "d/dataset.json", manifest.dump());
  std::filesystem::remove(directory_ / "d/tokenizer.json");
  EXPECT_EQ(damages(), std::vector<std::string>{}) << "where it is not known which";
}

TEST_F(VerifyTest, what_cannot_be_read_now_is_no_damage_and_what_was_found_before_is_kept) {
  write();
  flip("d/part_100.bin", 1'030, 0);
  const auto check = [&](ShardFiles& files, int code) {
    const auto found = verify(directory_ / "d", &files);
    ASSERT_EQ(found.damages.size(), 1u);
    expect_contains(found.damages[0], "part_100.bin: the XXH3-128");
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

TEST_F(VerifyTest, shards_without_hashes_that_may_not_be_read_are_no_damage) {
  std::filesystem::create_directories(directory_ / "d");
  for (const char* name : {"a", "b"})
    spit(directory_ / "d" / str(name, ".bin"), gpt2_shard(random_tokens(100, 50257)));
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  std::filesystem::permissions(directory_ / "d/b.bin", std::filesystem::perms::none);
  const AsNobody nobody;
  const auto found = verify(directory_ / "d");
  EXPECT_EQ(found.damages, std::vector<std::string>{});
  EXPECT_TRUE(found.ended);
}

TEST_F(VerifyTest, shards_of_others_are_checked_as_far_as_they_say) {
  std::filesystem::create_directories(directory_ / "d");
  spit(directory_ / "d/a.bin", gpt2_shard(random_tokens(100, 50257)));
  auto found = verify(directory_ / "d");
  EXPECT_TRUE(found.damages.empty());
  EXPECT_FALSE(found.hashed);
  spit(directory_ / "d/b.bin", gpt2_shard({1, 2, 50257}));
  found = verify(directory_ / "d");
  ASSERT_EQ(found.damages.size(), 1u);
  expect_contains(found.damages[0], "b.bin: at byte 1028: token 2 is 50257");
}

}  // namespace lockstep::testing::verify_test

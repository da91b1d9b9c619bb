#include "data/manifest.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/wording.h"

namespace lockstep::testing::manifest_test {

Manifest example() {
  Manifest manifest;
  manifest.format = {"bytes", kShardHeaderBytes, 2, 257, Boundary::front, 256};
  manifest.tokenizer_hash = std::string(32, 'a');
  manifest.shards = {{"train_000000.bin", 100, 3, std::string(32, '0'), std::string(32, '1'), ""},
                     {"train_000001.bin", 50, 0, std::string(32, '2'), std::string(32, '3'), ""}};
  return manifest;
}

std::string refusal(const std::string& text) {
  return message_of<DataError>([&] { Manifest::parse(text, "d/dataset.json"); });
}

// The example with `from` replaced by `to`.
std::string edited(const std::string& from, const std::string& to) {
  auto text = example().dump();
  const auto place = text.find(from);
  LOCKSTEP_CHECK(place != std::string::npos, from, " is not in ", text);
  return text.replace(place, from.size(), to);
}

TEST(Manifest, a_dumped_manifest_is_parsed_unchanged) {
  for (const auto boundary : {Boundary::front, Boundary::behind, Boundary::listed}) {
    auto manifest = example();
    manifest.format.boundary = boundary;
    if (boundary == Boundary::listed) manifest.format.boundary_token = -1;
    const auto read = Manifest::parse(manifest.dump(), "d/dataset.json");
    EXPECT_EQ(read.format.name, "bytes");
    EXPECT_EQ(read.format.header_bytes, 1024);
    EXPECT_EQ(read.format.token_bytes, 2);
    EXPECT_EQ(read.format.vocabulary, 257);
    EXPECT_EQ(read.format.boundary, boundary);
    EXPECT_EQ(read.format.boundary_token, manifest.format.boundary_token);
    EXPECT_EQ(read.tokenizer_hash, manifest.tokenizer_hash);
    EXPECT_EQ(read.tokens(), 150);
    EXPECT_EQ(read.documents(), 3);
    ASSERT_EQ(read.shards.size(), 2u);
    EXPECT_EQ(read.shards[0].file, "train_000000.bin");
    EXPECT_EQ(read.shards[1].tokens, 50);
    EXPECT_EQ(read.shards[1].hash, std::string(32, '2'));
    EXPECT_EQ(read.shards[1].ends_hash, std::string(32, '3'));
    EXPECT_EQ(read.dump(), manifest.dump());
  }
}

TEST(Manifest, all_shards_or_none_have_a_loss_mask) {
  auto manifest = example();
  for (auto& shard : manifest.shards)
    shard.mask_hash = std::string(32, 'b');
  EXPECT_EQ(Manifest::parse(manifest.dump(), "x").shards[1].mask_hash, std::string(32, 'b'));
  EXPECT_EQ(Manifest::parse(manifest.dump(), "x").dump(), manifest.dump());
  manifest.shards[1].mask_hash = "";
  expect_refusal<DataError>("data/manifest", "a mask of one shard of two", {"train_000001.bin"},
                            [&] { Manifest::parse(manifest.dump(), "d/dataset.json"); });
}

// The lines that dump() writes are read by a scanner of their own: what it gives must be what JSON
// gives, in this and in any other form.
TEST(Manifest, other_layouts_of_the_same_json_give_the_same_manifest) {
  auto manifest = example();
  manifest.shards[1].file = "a \\ \"quoted\" na\xc3\xafve.bin";
  for (const bool masked : {false, true}) {
    for (auto& shard : manifest.shards)
      shard.mask_hash = masked ? std::string(32, 'c') : "";
    const auto text = manifest.dump();
    const auto json = Json::parse(text, "x", 4);
    for (const int indent : {-1, 2, 4})
      EXPECT_EQ(Manifest::parse(json.dump(indent), "x").dump(), text);
    EXPECT_EQ(Manifest::parse(text, "x").dump(), text);
  }
}

// Each edit of a byte of the lines is accepted with the values that JSON has, or refused.
TEST(Manifest, the_line_scanner_accepts_only_valid_json) {
  const auto text = example().dump();
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const char c : {'\0', ' ', '"', '0', '9', 'z', ',', '}', ']', '\\', '\n'}) {
      auto edited = text;
      edited[i] = c;
      std::string fast, slow;
      try {
        fast = Manifest::parse(edited, "x").dump();
      } catch (const DataError&) {
      }
      try {  // a blank at the end: not what dump() writes
        slow = Manifest::parse(edited + " ", "x").dump();
      } catch (const DataError&) {
      }
      ASSERT_EQ(fast, slow) << edited;
    }
}

TEST(Manifest, shards_can_be_visited_without_storing_them) {
  std::vector<std::string> files;
  const auto manifest = Manifest::parse(
      example().dump(), "x", [&](Manifest::Shard&& shard) { files.push_back(shard.file); });
  EXPECT_TRUE(manifest.shards.empty());
  EXPECT_EQ(manifest.format.vocabulary, 257);
  EXPECT_EQ(files, (std::vector<std::string>{"train_000000.bin", "train_000001.bin"}));
}

TEST(Manifest, each_wrong_value_is_an_error_with_its_name) {
  struct Edit {
    std::string from, to, says;
  };
  const Edit edits[] = {
      {R"("lockstep_dataset": 1)", R"("lockstep_dataset": 2)", "\"lockstep_dataset\" is 2"},
      {R"("dtype": "u16")", R"("dtype": "u8")", "dtype is \"u8\""},
      {R"("vocabulary": 257)", R"("vocabulary": 65537)", "\"vocabulary\" is 65537"},
      {R"("vocabulary": 257)", R"("vocabulary": "257")", "\"vocabulary\" is \"257\""},
      {R"("boundary": "front")", R"("boundary": "around")", "boundary is \"around\""},
      {R"("boundary": "front")", R"("boundary": 3)", "\"boundary\" is 3"},
      {R"("boundary_token": 256)", R"("boundary_token": 257)", "\"boundary_token\" is 257"},
      {R"("tokenizer_xxh3_128": "a)", R"("tokenizer_xxh3_128": "g)", "\"tokenizer_xxh3_128\" is"},
      {R"("tokens": 150)", R"("tokens": 151)", "\"tokens\" is 151, expected 150"},
      {R"("documents": 3)", R"("documents": 4)", "\"documents\" is 4, expected 3"},
      {R"("tokens": 100)", R"("tokens": 0)", "\"tokens\" is 0"},
      {R"("tokens": 100)", R"("tokens": 2147483648)", "\"tokens\" is 2147483648"},
      {R"("tokens": 100)", R"("tokens": 1e2)", "\"tokens\" is 100.0"},
      {"train_000001.bin", "../x.bin", "shard file \"../x.bin\""},
      {"train_000001.bin", "x\\u0000.bin", "shard file \"x"},
      {"train_000001.bin", "x.txt", "shard file \"x.txt\""},
      {"train_000001.bin", "train_000000.bin", "\"train_000000.bin\" is listed twice"},
      {R"("vocabulary")", R"("vocab")", "\"vocabulary\" is missing"},
      {R"("shards")", R"("pieces")", "\"shards\" is missing"},
  };
  for (const auto& edit : edits) {
    expect_refusal<DataError>(
        "data/manifest", edit.from + " -> " + edit.to, {"d/dataset.json: ", edit.says},
        [&] { Manifest::parse(edited(edit.from, edit.to), "d/dataset.json"); });
  }
}

TEST(Manifest, text_that_is_not_a_manifest_is_an_error) {
  for (const std::string text : {"", "[]", "{}", "{", "3", R"({"lockstep_dataset": 1, "a": 2})"}) {
    SCOPED_TRACE(text);
    EXPECT_TRUE(refusal(text).starts_with("d/dataset.json: "));
  }
  expect_contains(refusal(example().dump() + "x"), "d/dataset.json: at byte");
}

}  // namespace lockstep::testing::manifest_test

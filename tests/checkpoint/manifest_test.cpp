#include "checkpoint/manifest.h"

#include "core/hash.h"
#include "tests/files.h"

namespace lockstep::manifest_test {

using testing::expect_contains;
using testing::message_of;

const std::string kHash(32, 'a');

// Two files: a matrix cut by columns into two parts, the second of them into two ranges; a vector.
CheckpointManifest example() {
  CheckpointManifest m;
  m.step = 1000;
  m.about = Json::parse(R"({"tokens": 3, "configuration": {"train": {"steps": 7}}})", "about");
  m.files = {{"rank-00000.safetensors", 16 + 24, 16, kHash},
             {"rank-00001.safetensors", 8 + 16, 8, kHash}};
  m.tensors.push_back(
      {"w",
       {2, 5},
       DType::bf16,
       {1, 2, 3},
       {{{0, 0, 6}, 0, 28, kHash}, {{1, 0, 1}, 1, 8, kHash}, {{1, 1, 4}, 1, 10, kHash}}});
  m.tensors.push_back({"v", {3}, DType::fp32, {0, 1, 3}, {{{0, 0, 3}, 0, 16, kHash}}});
  m.tensors.push_back({"u", {8}, DType::uint8, {0, 1, 8}, {{{0, 0, 8}, 1, 16, kHash}}});
  return m;
}

std::string refusal(const std::string& text) {
  auto message = message_of<DataError>([&] { CheckpointManifest::parse(text, "m"); });
  expect_contains(message, "m: ");
  return message;
}

// The example after `spoil`, with a hash that is right.
template <class Spoil>
std::string refusal_after(const Spoil& spoil) {
  CheckpointManifest m = example();
  spoil(m);
  return refusal(m.dump());
}

TEST(Manifest, reads_what_it_wrote) {
  const std::string text = example().dump();
  const CheckpointManifest m = CheckpointManifest::parse(text, "m");
  EXPECT_EQ(m.dump(), text);
  EXPECT_EQ(m.step, 1000);
  EXPECT_EQ(m.about.at("configuration").dump(), R"({"train":{"steps":7}})");
  ASSERT_EQ(m.tensors.size(), 3u);
  EXPECT_EQ(m.tensors[0].shape, (Shape{2, 5}));
  EXPECT_EQ(m.tensors[0].split, (Split{1, 2, 3}));
  EXPECT_EQ(m.tensors[0].slices[2].piece.begin, 1);
  EXPECT_EQ(m.tensors[1].dtype, DType::fp32);
  EXPECT_EQ(m.files[1].name, "rank-00001.safetensors");
}

TEST(Manifest, its_last_member_is_the_hash_of_all_bytes_before_it) {
  const std::string text = example().dump();
  const auto member = text.rfind("\"xxh3_128\"");
  EXPECT_EQ(text.substr(member), "\"xxh3_128\": \"" + hash_hex(text.substr(0, member)) + "\"\n}\n");
}

TEST(Manifest, every_truncation_and_every_flipped_bit_is_refused) {
  std::string text = example().dump();
  for (std::size_t n = 0; n < text.size(); ++n)
    refusal(text.substr(0, n));
  refusal(text + "\n");
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      refusal(text);
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  EXPECT_EQ(CheckpointManifest::parse(text, "m").step, 1000);
}

TEST(Manifest, each_element_must_be_in_exactly_one_slice) {
  expect_contains(refusal_after([](CheckpointManifest& m) {
                    m.tensors[0].slices[2].piece = {1, 2, 4};
                  }),
                  "w: part 1: a slice starts at element 2, expected 1");
  expect_contains(refusal_after([](CheckpointManifest& m) {
                    m.tensors[0].slices[2].piece = {1, 0, 4};
                  }),
                  "w: part 1: a slice starts at element 0, expected 1");
  expect_contains(refusal_after([](CheckpointManifest& m) {
                    m.tensors[0].slices[2].piece = {1, 1, 3};
                  }),
                  "w: part 1: slices end at element 3 of 4");
  expect_contains(refusal_after([](CheckpointManifest& m) {
                    m.tensors[0].slices.erase(m.tensors[0].slices.begin());
                  }),
                  "w: part 0: slices end at element 0 of 6");
}

TEST(Manifest, each_byte_must_be_in_exactly_one_slice) {
  expect_contains(refusal_after([](CheckpointManifest& m) { m.tensors[0].slices[0].offset = 27; }),
                  "rank-00000.safetensors: a slice starts at byte 27, expected 28");
  expect_contains(refusal_after([](CheckpointManifest& m) {
                    m.tensors[0].slices[0].offset = 29;
                    m.files[0].bytes += 1;
                  }),
                  "rank-00000.safetensors: a slice starts at byte 29, expected 28");
  expect_contains(refusal_after([](CheckpointManifest& m) { m.files[1].bytes += 1; }),
                  "rank-00001.safetensors: slices end at byte 24 of 25");
  expect_contains(refusal_after([](CheckpointManifest& m) { m.tensors.pop_back(); }),
                  "rank-00001.safetensors: slices end at byte 16 of 24");
}

TEST(Manifest, slices_must_be_inside_their_tensor_and_file) {
  expect_contains(
      refusal_after([](CheckpointManifest& m) { m.tensors[0].slices[0].piece.part = 2; }),
      "w: \"part\" is 2, expected 0 to 1");
  expect_contains(
      refusal_after([](CheckpointManifest& m) { m.tensors[0].slices[0].piece.end = 7; }),
      "w: \"end\" is 7, expected 1 to 6");
  expect_contains(
      refusal_after([](CheckpointManifest& m) { m.tensors[0].slices[0].piece.begin = -1; }),
      "w: \"begin\" is -1");
  expect_contains(refusal_after([](CheckpointManifest& m) { m.tensors[1].slices[0].file = 2; }),
                  "v: \"file\" is 2, expected 0 to 1");
  expect_contains(refusal_after([](CheckpointManifest& m) { m.tensors[1].slices[0].offset = 15; }),
                  "v: \"offset\" is 15, expected 16 to 40");
  expect_contains(refusal_after([](CheckpointManifest& m) { m.tensors[1].slices[0].offset = 30; }),
                  "reaches beyond rank-00000.safetensors");
  expect_contains(refusal_after([](CheckpointManifest& m) { m.tensors[1].slices[0].hash = "A"; }),
                  "\"xxh3_128\" is \"A\", expected 32");
}

TEST(Manifest, shapes_and_splits_must_make_sense) {
  const auto shape = [](const Shape& s) {
    return refusal_after([&](CheckpointManifest& m) { m.tensors[1].shape = s; });
  };
  expect_contains(shape({}), "v: expected 1 to 4 dimensions, found 0");
  expect_contains(shape({0}), "v: a dimension of size 0");
  expect_contains(shape({std::int64_t{1} << 40, std::int64_t{1} << 40}), "v: a dimension of size");
  const auto split = [](const Split& s) {
    return refusal_after([&](CheckpointManifest& m) { m.tensors[0].split = s; });
  };
  expect_contains(split({2, 2, 3}), "w: \"dim\" is 2, expected 0 to 1");
  expect_contains(split({1, 0, 3}), "w: \"parts\" is 0, expected 1 to 5");
  expect_contains(split({1, 6, 1}), "w: \"parts\" is 6, expected 1 to 5");
  expect_contains(split({1, 2, 2}), "w: \"step\" is 2, expected 3 to 5");
  expect_contains(refusal_after([](CheckpointManifest& m) {
                    m.tensors[1].shape = {std::int64_t{1} << 40};
                    m.tensors[1].split = {0, 1 << 30, std::int64_t{1} << 40};
                  }),
                  "parts of");
}

TEST(Manifest, names_must_be_plain_and_there_once) {
  for (const char* name : {"../x", "/x", "a/b", "..", ".", ""})
    expect_contains(refusal_after([&](CheckpointManifest& m) { m.files[0].name = name; }),
                    "is not one beside the manifest");
  expect_contains(refusal_after([](CheckpointManifest& m) { m.files[1].name = m.files[0].name; }),
                  "the file rank-00000.safetensors is there twice");
  expect_contains(refusal_after([](CheckpointManifest& m) { m.tensors[1].name = "w"; }),
                  "the tensor w is there twice");
}

TEST(Manifest, other_formats_and_versions_are_refused) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = example().dump();
    text.replace(text.find(from), from.size(), to);
    text = text.substr(0, text.rfind("\"xxh3_128\""));
    return refusal(text + "\"xxh3_128\": \"" + hash_hex(text) + "\"\n}\n");
  };
  expect_contains(with("lockstep checkpoint", "other"), "format is \"other\"");
  expect_contains(with("\"version\": 1", "\"version\": 2"), "\"version\" is 2, expected 1");
  expect_contains(with("\"step\": 1000", "\"step\": -1"), "\"step\" is -1");
  expect_contains(with("\"BF16\"", "\"F17\""), "w: unknown dtype \"F17\"");
  expect_contains(with("\"about\"", "\"above\""), "the key \"about\" is missing");
}

}  // namespace lockstep::manifest_test

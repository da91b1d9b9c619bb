#include "checkpoint/manifest.h"

#include <cstring>
#include <functional>

#include "core/hash.h"
#include "tests/wording.h"

namespace lockstep::testing::manifest_test {

const std::string kHash(32, 'a');

// Two files with a matrix and a vector. The matrix has two parts of columns; part 1 has two ranges.
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

// The changed example, with a correct hash, is rejected.
struct Refusal {
  const char *name, *pin;
  std::function<void(CheckpointManifest&)> change;
};
void expect_refused(std::initializer_list<Refusal> table) {
  for (const auto& [name, pin, change] : table) {
    auto manifest = example();
    change(manifest);
    expect_refusal<DataError>("checkpoint/manifest", name, {"m: ", pin},
                              [&] { CheckpointManifest::parse(manifest.dump(), "m"); });
  }
}

TEST(Manifest, reads_its_own_text) {
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

TEST(Manifest, every_truncation_and_every_flipped_bit_is_rejected) {
  const auto refuses = [](const std::string& text) {
    expect_contains(message_of<DataError>([&] { CheckpointManifest::parse(text, "m"); }), "m: ");
  };
  std::string text = example().dump();
  for (std::size_t n = 0; n < text.size(); ++n)
    refuses(text.substr(0, n));
  refuses(text + "\n");
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
      refuses(text);
      text[i] = static_cast<char>(text[i] ^ (1 << bit));
    }
  EXPECT_EQ(CheckpointManifest::parse(text, "m").step, 1000);
}

TEST(Manifest, each_element_and_each_byte_must_be_in_exactly_one_slice) {
  const auto piece = [](const Piece& p) {
    return [p](CheckpointManifest& m) { m.tensors[0].slices[2].piece = p; };
  };
  expect_refused({
      {"a hole of elements", "w: part 1: ", piece({1, 2, 4})},
      {"elements twice", "w: part 1: ", piece({1, 0, 4})},
      {"elements at the end", "w: part 1: ", piece({1, 1, 3})},
      {"a part",
       "w: part 0: ", [](auto& m) { m.tensors[0].slices.erase(m.tensors[0].slices.begin()); }},
      {"bytes twice",
       "rank-00000.safetensors: ", [](auto& m) { m.tensors[0].slices[0].offset = 27; }},
      {"a hole of bytes", "rank-00000.safetensors: ",
       [](auto& m) {
         m.tensors[0].slices[0].offset = 29;
         m.files[0].bytes += 1;
       }},
      {"bytes at the end", "rank-00001.safetensors: ", [](auto& m) { m.files[1].bytes += 1; }},
      {"a tensor", "rank-00001.safetensors: ", [](auto& m) { m.tensors.pop_back(); }},
  });
}

TEST(Manifest, slices_must_be_inside_their_tensor_and_file) {
  expect_refused({
      {"part", "w: \"part\" is 2", [](auto& m) { m.tensors[0].slices[0].piece.part = 2; }},
      {"end", "w: \"end\" is 7", [](auto& m) { m.tensors[0].slices[0].piece.end = 7; }},
      {"begin", "w: \"begin\" is -1", [](auto& m) { m.tensors[0].slices[0].piece.begin = -1; }},
      {"file", "v: \"file\" is 2", [](auto& m) { m.tensors[1].slices[0].file = 2; }},
      {"offset", "v: \"offset\" is 15", [](auto& m) { m.tensors[1].slices[0].offset = 15; }},
      {"beyond the file", "rank-00000.safetensors",
       [](auto& m) { m.tensors[1].slices[0].offset = 30; }},
      {"hash", "\"xxh3_128\" is \"A\"", [](auto& m) { m.tensors[1].slices[0].hash = "A"; }},
  });
}

TEST(Manifest, shapes_and_splits_must_be_valid) {
  const auto shape = [](const Shape& s) {
    return [s](CheckpointManifest& m) { m.tensors[1].shape = s; };
  };
  const auto split = [](const Split& s) {
    return [s](CheckpointManifest& m) { m.tensors[0].split = s; };
  };
  constexpr auto kLarge = std::int64_t{1} << 40;
  expect_refused({
      {"no dimensions", "v: ", shape({})},
      {"a size of 0", "v: ", shape({0})},
      {"large sizes", "v: ", shape({kLarge, kLarge})},
      {"dim", "w: \"dim\" is 2", split({2, 2, 3})},
      {"no parts", "w: \"parts\" is 0", split({1, 0, 3})},
      {"many parts", "w: \"parts\" is 6", split({1, 6, 1})},
      {"step", "w: \"step\" is 2", split({1, 2, 2})},
      {"a billion parts", "v: ",
       [](auto& m) {
         m.tensors[1].shape = {kLarge};
         m.tensors[1].split = {0, 1 << 30, kLarge};
       }},
  });
}

TEST(Manifest, names_must_be_plain_and_unique) {
  for (const char* name : {"../x", "/x", "a/b", "..", ".", ""}) {
    const auto refusal = str("file ", name);
    expect_refused({{refusal.c_str(), "", [&](auto& m) { m.files[0].name = name; }}});
  }
  expect_refused({
      {"a file twice", "rank-00000.safetensors",
       [](auto& m) { m.files[1].name = m.files[0].name; }},
      {"a tensor twice", " w ", [](auto& m) { m.tensors[1].name = "w"; }},
  });
}

TEST(Manifest, other_formats_and_versions_are_rejected) {
  const std::tuple<const char*, const char*, const char*> edits[] = {
      {"lockstep checkpoint", "other", "\"other\""},
      {"\"version\": 1", "\"version\": 3", "\"version\" is 3"},
      {"\"version\": 1", "\"version\": 2", "\"epoch\""},
      {"\"step\": 1000", "\"step\": -1", "\"step\" is -1"},
      {"\"BF16\"", "\"F17\"", "w: unknown dtype \"F17\""},
      {"\"about\"", "\"above\"", "\"about\""}};
  for (const auto& [from, to, pin] : edits) {
    auto text = example().dump();
    text.replace(text.find(from), std::strlen(from), to);
    text = text.substr(0, text.rfind("\"xxh3_128\""));
    text += "\"xxh3_128\": \"" + hash_hex(text) + "\"\n}\n";
    expect_refusal<DataError>("checkpoint/manifest", str(from, " -> ", to), {"m: ", pin},
                              [&] { CheckpointManifest::parse(text, "m"); });
  }
}

}  // namespace lockstep::testing::manifest_test

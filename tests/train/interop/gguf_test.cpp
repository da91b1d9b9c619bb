// GGUF files: the bytes of small ones, and what is refused. tests/end_to_end/llama_cpp_test.py
// loads files of every family in llama.cpp.
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "tests/files.h"
#include "tests/train/training_rig.h"
#include "tests/wording.h"
#include "train/interop/gguf_export.h"
#include "train/interop/gguf_tokenizer.h"
#include "train/step/inference.h"
#include "train/step/state_slices.h"

namespace lockstep::testing::gguf_test {

constexpr float kHuge = 65519.99f;

TEST(Gguf, halves_are_those_of_the_compiler) {
  const auto expect_same = [](float value) {
    const auto half = static_cast<_Float16>(value);
    EXPECT_EQ(to_half(value), std::bit_cast<std::uint16_t>(half)) << value;
  };
  for (std::uint32_t bits = 0; bits < 0x7f800000u; bits += 9973)
    for (const auto sign : {0u, 0x80000000u})
      expect_same(std::bit_cast<float>(bits | sign));
  for (int half = 0; half < 0x7c00; ++half) {  // every half, and the ties beside it
    const auto value =
        static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(half)));
    const auto next =
        static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(half + 1)));
    expect_same(value);
    if (half + 1 < 0x7c00) expect_same((value + next) / 2);
  }
  for (const float value : {kHuge, 65520.0f, 1e9f, HUGE_VALF})
    expect_same(value);
}

template <class T>
T at(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// docs/gguf.md of ggml defines each byte.
TEST(Gguf, a_file_has_metadata_then_aligned_tensors) {
  const TemporaryDirectory directory;
  const auto path = directory / "model.gguf";
  GgufMetadata metadata;
  metadata.set("k", std::int64_t{7});
  GgufWriter writer(path, metadata, {{"a", {3}, GgufType::f32}, {"b", {2, 32}, GgufType::q8_0}});
  writer.write(std::vector<float>{1, 2, 3});
  std::vector<float> rows(64, 0.0f);
  rows[0] = -254, rows[1] = 100.9f, rows[33] = 0.5f;
  writer.write(std::span(rows).first(32));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.write(std::span(rows).last(32));
  writer.commit();
  const auto file = slurp(path);
  EXPECT_EQ(file.substr(0, 4), "GGUF");
  EXPECT_EQ(at<std::uint32_t>(file, 4), 3u);   // version
  EXPECT_EQ(at<std::uint64_t>(file, 8), 2u);   // tensors
  EXPECT_EQ(at<std::uint64_t>(file, 16), 1u);  // keys
  EXPECT_EQ(at<std::uint64_t>(file, 24), 1u);  // length of the key
  EXPECT_EQ(file.substr(32, 1), "k");
  EXPECT_EQ(at<std::uint32_t>(file, 33), 4u);  // an unsigned number of 32 bits
  EXPECT_EQ(at<std::uint32_t>(file, 37), 7u);
  const std::size_t a = 41, b = a + 8 + 1 + 4 + 8 + 4 + 8;
  EXPECT_EQ(at<std::uint32_t>(file, a + 9), 1u);  // dimensions
  EXPECT_EQ(at<std::uint64_t>(file, a + 13), 3u);
  EXPECT_EQ(at<std::uint64_t>(file, b + 13), 32u);  // the elements of a row first
  EXPECT_EQ(at<std::uint64_t>(file, b + 21), 2u);
  EXPECT_EQ(at<std::uint32_t>(file, b + 29), 8u);   // Q8_0
  EXPECT_EQ(at<std::uint64_t>(file, b + 33), 32u);  // offset
  const std::size_t data = 128;                     // the next multiple of 32
  ASSERT_EQ(file.size(), data + 32 + 96);           // two blocks of 34 bytes, and padding
  EXPECT_EQ(at<float>(file, data + 8), 3.0f);
  EXPECT_EQ(at<std::uint16_t>(file, data + 32), std::bit_cast<std::uint16_t>(_Float16{2}));
  EXPECT_EQ(at<std::int8_t>(file, data + 34), -127);
  EXPECT_EQ(at<std::int8_t>(file, data + 35), 50);  // 50.45
  EXPECT_EQ(at<std::int8_t>(file, data + 32 + 34 + 2 + 1), 127);
  GgufWriter other(path, metadata, {{"a", {1}, GgufType::f16}});
  EXPECT_THROW(other.write(std::vector<float>{1e6f}), DataError);
}

// A byte-level tokenizer with a pattern and a flag.
std::string tokenizer(const std::string& pattern, bool whole_words, const std::string& more = "") {
  return str(R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [)",
             R"({"type": "Split", "pattern": {"Regex": ")", pattern,
             R"("}, "behavior": "Isolated"}, )",
             R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}, )",
             R"("added_tokens": [{"id": 2, "content": "<|endoftext|>", "special": true, )",
             R"("normalized": false}], )", more, R"("model": {"type": "BPE", "ignore_merges": )",
             whole_words ? "true" : "false",
             R"(, "vocab": {"a": 0, "b": 1, "ab": 3}, "merges": ["a b"]}})");
}

std::string added(const std::string& text) {
  const TemporaryDirectory directory;
  spit(directory / "tokenizer.json", text);
  GgufMetadata metadata;
  add_gguf_tokenizer(metadata, directory.path().string(), {}, 5);
  return metadata.bytes();
}

TEST(Gguf, patterns_without_a_name_are_refused) {
  constexpr const char* kGpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+)";
  const auto bytes = added(tokenizer(kGpt2, false));
  for (const char* part : {"gpt-2", "[PAD4]", "a b", "<|endoftext|>"})
    EXPECT_NE(bytes.find(part), std::string::npos) << part;
  const auto refused = [&](const char* name, const std::string& pin, const std::string& text) {
    expect_refusal<DataError>("train/gguf", name, {pin}, [&] { added(text); });
  };
  refused("whole words", "pattern", tokenizer(kGpt2, true));
  refused("pattern", "pattern", tokenizer(R"(\\w+)", false));
  refused("normalizer", "NFC", tokenizer(kGpt2, false, R"("normalizer": {"type": "NFKC"}, )"));
  EXPECT_NO_THROW(added(tokenizer(kGpt2, false, R"("normalizer": {"type": "NFC"}, )")));
}

TEST(Gguf, models_that_llama_cpp_lacks_are_refused) {
  const TemporaryDirectory directory;
  const GgufExport how{.type = GgufType::f32, .tokenizer = "bytes"};
  const auto refused = [&](const char* name, const std::string& pin, const ModelConfig& config) {
    expect_refusal<DataError>("train/gguf", name, {pin},
                              [&] { export_gguf(directory / "x.gguf", config, {}, how); });
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  };
  auto config = small_model(Family::qwen3, 32, 4);
  config.rope_scaling = RopeScaling{};
  refused("rope scaling", "qwen3", config);
  config = small_model(Family::smollm3, 32, 4);
  config.no_rope_every = 3;
  refused("no rope", "no_rope_every", config);
  config = small_model(Family::qwen2, 32, 4);
  config.head_size = 16;
  refused("head size", "qwen2", config);
  spit(directory / "x.gguf", "kept");
  expect_refusal<UsageError>("train/gguf", "existing file", {"x.gguf"},
                             [&] { export_gguf(directory / "x.gguf", config, {}, how); });
  EXPECT_EQ(slurp(directory / "x.gguf"), "kept");
}

}  // namespace lockstep::testing::gguf_test

#include "data/tokenizer/tokenizer.h"

#include <fstream>
#include <gtest/gtest.h>

#include "core/file.h"
#include "core/hash.h"
#include "data/tokenizer/tokenizer_files.h"
#include "tests/wording.h"

namespace lockstep::testing::tokenizer_test {

namespace fs = std::filesystem;

const fs::path kTokenizers = LOCKSTEP_TOKENIZERS;

// A copy of a tokenizer.json in a directory called `name`, and a tokenizer_config.json where it is
// not empty.
fs::path copy_of(const TemporaryDirectory& directory, const std::string& family,
                 const std::string& name, const std::string& config = "") {
  auto path = directory / name;
  fs::create_directories(path);
  fs::copy_file(kTokenizers / family / "tokenizer.json", path / "tokenizer.json");
  if (!config.empty()) std::ofstream(path / "tokenizer_config.json") << config;
  return path;
}

TEST(ByteTokenizer, every_byte_survives_the_round_trip) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text.push_back(static_cast<char>(byte));
  const ByteTokenizer bytes;
  const auto tokens = bytes.encode(text);
  ASSERT_EQ(tokens.size(), 256u);
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(tokens[static_cast<std::size_t>(byte)], byte);
  EXPECT_EQ(bytes.decode(tokens), text);
}

TEST(ByteTokenizer, ids_that_are_not_bytes_are_left_out_of_the_text) {
  const std::vector<std::int32_t> tokens{ByteTokenizer::kDocumentToken, 'a', 300, -1, 'b'};
  EXPECT_EQ(ByteTokenizer().decode(tokens), "ab");
}

TEST(OpenTokenizer, accepts_the_file_or_its_directory) {
  const TemporaryDirectory directory;
  const auto path = copy_of(directory, "gpt2", "my-gpt2");
  const auto by_directory = open_tokenizer(path.string());
  const auto by_file = open_tokenizer((path / "tokenizer.json").string());
  for (const auto* tokenizer : {by_directory.get(), by_file.get()}) {
    const auto& about = tokenizer->about();
    EXPECT_EQ(about.name, "my-gpt2");
    EXPECT_EQ(about.hash, hash_of_file(path / "tokenizer.json"));
    EXPECT_EQ(about.vocabulary, 701);
    EXPECT_EQ(about.document_token, 700);
    EXPECT_EQ(about.end_token, 700);
    EXPECT_EQ(tokenizer->bytes_of(700), "<|endoftext|>");
  }
  ASSERT_EQ(tokenizer_files(path.string()).size(), 1u);
  EXPECT_EQ(tokenizer_files(path.string()).front().path, path / "tokenizer.json");
  EXPECT_EQ(open_tokenizer("bytes")->about().vocabulary, 257);
  EXPECT_TRUE(tokenizer_files("bytes").empty());
}

// prefix: lm_eval's prefix_token_id, bos_token_id or else eos_token_id.
TEST(OpenTokenizer, its_configuration_defines_the_document_and_end_tokens) {
  struct Case {
    const char *family, *config, *begin, *end, *prefix, *asked = "";
  };
  constexpr const char kEnd[] = "<|endoftext|>", kImEnd[] = "<|im_end|>",
                       kBegin[] = "<|begin_of_text|>", kEndOfText[] = "<|end_of_text|>";
  const Case cases[] = {
      {"llama3", R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"})", kBegin,
       kEndOfText, kBegin},
      {"qwen3", R"({"bos_token": null, "eos_token": {"content": "<|im_end|>"}})", kEnd, kImEnd,
       kImEnd},
      {"qwen3", R"({"bos_token": null, "eos_token": "<|im_end|>"})", kEnd, kImEnd, kImEnd, kEnd},
      // has no <|endoftext|>
      {"llama3", R"({"bos_token": null, "eos_token": "<|end_of_text|>"})", kEndOfText, kEndOfText,
       kEndOfText},
      {"smollm3", "", kBegin, kBegin, kBegin},
      {"other", "", "", "", ""},                                    // none is known
      {"gpt2", R"({"model_max_length": 1024})", kEnd, kEnd, kEnd},  // as it is published
      {"gpt2", "", kEnd, kEnd, kEnd}};
  for (const auto& c : cases) {
    SCOPED_TRACE(str(c.family, " ", c.config));
    const TemporaryDirectory directory;
    const auto path = copy_of(directory, c.family, "a", c.config);
    const auto tokenizer = open_tokenizer(path.string(), c.asked);
    const auto& about = tokenizer->about();
    EXPECT_EQ(tokenizer->bytes_of(about.document_token), c.begin);
    EXPECT_EQ(tokenizer->bytes_of(about.end_token), c.end);
    EXPECT_EQ(tokenizer->bytes_of(about.prefix_token), c.prefix);
    EXPECT_EQ(tokenizer_files(path.string()).size(), *c.config == '\0' ? 1u : 2u);
  }
  EXPECT_EQ(ByteTokenizer().about().prefix_token, 256);
}

TEST(OpenTokenizer, invalid_tokenizers_are_an_error) {
  const TemporaryDirectory directory;
  const auto path = copy_of(directory, "gpt2", "a");
  const auto refused = [](const auto& error, const char* name, const fs::path& what,
                          std::initializer_list<std::string> pins, const std::string& asked = "") {
    expect_refusal<std::decay_t<decltype(error)>>("data/tokenizer", name, pins,
                                                  [&] { open_tokenizer(what.string(), asked); });
  };
  const UsageError usage("");
  const DataError data("");
  refused(usage, "no such special token", path, {"<|bos|>", "<|endoftext|>"}, "<|bos|>");
  refused(usage, "a special token of bytes", "bytes", {"<|bos|>"}, "<|bos|>");
  refused(data, "not there", directory / "gpt2", {"/gpt2: "});
  const auto other = directory / "other";
  fs::create_directory(other);
  refused(data, "an empty directory", other, {"/other: ", "tokenizer.json"});
  for (const char* name : {"vocab.json", "merges.txt"})
    std::ofstream(other / name) << "{}";
  refused(data, "a vocabulary", other, {"vocab.json", "merges.txt"});
  // So Llama 2's begins. Llama 3's file of the same name is a rank file, which is read.
  std::ofstream(other / "tokenizer.model", std::ios::binary)
      << std::string("\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", 16);
  refused(data, "SentencePiece", other, {"/tokenizer.model: "});
  std::ofstream(path / "tokenizer_config.json") << R"({"bos_token": 3})";
  refused(data, "a configuration", path, {"/tokenizer_config.json: "});
}

TEST(TokenizerFiles, copies_have_names_that_define_the_same_tokenizer) {
  const TemporaryDirectory directory;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(directory / name) << text;
    return (directory / name).string();
  };
  const auto names = [](const std::string& what) {
    std::vector<std::string> found;
    for (const auto& file : tokenizer_files(what))
      found.push_back(file.name);
    return found;
  };
  using Names = std::vector<std::string>;
  const auto ranks = write("llama3.model", "YQ== 0\nYg== 1\n");
  const auto list = write("mistral.json", R"({"vocab": []})");
  const auto json = write("other.json", R"({"model": {}})");
  EXPECT_EQ(names(ranks), Names{"tokenizer.model"});
  EXPECT_EQ(names(list), Names{"tekken.json"});
  EXPECT_EQ(names(json), Names{"tokenizer.json"});
  // A file that a directory would give instead is left out, one that comes behind it is kept.
  write("tekken.json", "");
  const auto own = write("tokenizer.model", "");
  write("tokenizer_config.json", "{}");
  EXPECT_EQ(names(own), (Names{"tokenizer.model", "tokenizer_config.json"}));
  EXPECT_EQ(names(json),
            (Names{"tokenizer.json", "tekken.json", "tokenizer.model", "tokenizer_config.json"}));
  EXPECT_EQ(names(directory.path().string()),
            (Names{"tekken.json", "tokenizer.model", "tokenizer_config.json"}));
  const TemporaryDirectory to;
  copy_tokenizer_files(tokenizer_files(ranks), to / "copy");
  EXPECT_EQ(slurp(to / "copy/tokenizer.model"), slurp(ranks));
  EXPECT_EQ(tokenizer_in(to / "copy"), to / "copy/tokenizer.model");
}

}  // namespace lockstep::testing::tokenizer_test

#include "data/tokenizer.h"

#include <fstream>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "tests/files.h"

namespace lockstep::testing {
namespace {

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

TEST(ByteTokenizer, what_is_no_byte_is_left_out_of_the_text) {
  const std::vector<std::int32_t> tokens{ByteTokenizer::kDocumentToken, 'a', 300, -1, 'b'};
  EXPECT_EQ(ByteTokenizer().decode(tokens), "ab");
}

TEST(OpenTokenizer, takes_the_file_or_its_directory) {
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
  EXPECT_EQ(tokenizer_files(path.string()), std::vector<fs::path>{path / "tokenizer.json"});
  EXPECT_EQ(open_tokenizer("bytes")->about().vocabulary, 257);
  EXPECT_TRUE(tokenizer_files("bytes").empty());
}

TEST(OpenTokenizer, its_configuration_says_what_begins_and_ends_a_document) {
  const TemporaryDirectory directory;
  const auto ends = [&](const std::string& family, const std::string& name,
                        const std::string& config, const std::string& asked = "") {
    const auto path = copy_of(directory, family, name, config);
    const auto tokenizer = open_tokenizer(path.string(), asked);
    const auto& about = tokenizer->about();
    return std::pair(std::string(tokenizer->bytes_of(about.document_token)),
                     std::string(tokenizer->bytes_of(about.end_token)));
  };
  using Ends = std::pair<std::string, std::string>;
  EXPECT_EQ(
      ends("llama3", "a", R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"})"),
      (Ends{"<|begin_of_text|>", "<|end_of_text|>"}));
  EXPECT_EQ(ends("qwen3", "b", R"({"bos_token": null, "eos_token": {"content": "<|im_end|>"}})"),
            (Ends{"<|endoftext|>", "<|im_end|>"}));
  EXPECT_EQ(
      ends("qwen3", "c", R"({"bos_token": null, "eos_token": "<|im_end|>"})", "<|endoftext|>"),
      (Ends{"<|endoftext|>", "<|im_end|>"}));
  EXPECT_EQ(ends("llama3", "s", R"({"bos_token": null, "eos_token": "<|end_of_text|>"})"),
            (Ends{"<|end_of_text|>", "<|end_of_text|>"}));  // has no <|endoftext|>
  EXPECT_EQ(ends("smollm3", "d", ""), (Ends{"<|begin_of_text|>", "<|begin_of_text|>"}));
  EXPECT_EQ(ends("other", "e", ""), (Ends{"", ""}));             // none is known
  EXPECT_EQ(ends("gpt2", "f", R"({"model_max_length": 1024})"),  // as it is published
            (Ends{"<|endoftext|>", "<|endoftext|>"}));
  EXPECT_EQ(tokenizer_files((directory / "a").string()).size(), 2u);
}

// lm_eval's prefix_token_id: bos_token_id, or else eos_token_id.
TEST(OpenTokenizer, the_prefix_of_an_empty_context_is_that_of_lm_eval) {
  const TemporaryDirectory directory;
  const auto prefix = [&](const std::string& family, const std::string& name,
                          const std::string& config) {
    const auto tokenizer = open_tokenizer(copy_of(directory, family, name, config).string());
    return std::string(tokenizer->bytes_of(tokenizer->about().prefix_token));
  };
  EXPECT_EQ(prefix("qwen3", "a", R"({"bos_token": null, "eos_token": "<|im_end|>"})"),
            "<|im_end|>");
  EXPECT_EQ(prefix("llama3", "b",
                   R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"})"),
            "<|begin_of_text|>");
  EXPECT_EQ(prefix("gpt2", "c", ""), "<|endoftext|>");
  EXPECT_EQ(ByteTokenizer().about().prefix_token, 256);
}

TEST(OpenTokenizer, what_cannot_be_used_is_said) {
  const TemporaryDirectory directory;
  const auto path = copy_of(directory, "gpt2", "a");
  const auto message = [](const auto& act) {
    try {
      act();
    } catch (const Error& error) {
      return str(error.exit_code(), ": ", error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message([&] { open_tokenizer(path.string(), "<|bos|>"); }),
            str("64: ", (path / "tokenizer.json").string(),
                ": no special token is called <|bos|>; it has <|endoftext|>"));
  EXPECT_EQ(message([&] { open_tokenizer("bytes", "<|bos|>"); }),
            "64: the tokenizer bytes has no token <|bos|>");
  EXPECT_EQ(
      message([&] { open_tokenizer("/nowhere/gpt2"); }),
      "65: /nowhere/gpt2: no such tokenizer; expected bytes, a tokenizer.json, or a directory "
      "that holds one");
  fs::create_directory(directory / "empty");
  EXPECT_EQ(message([&] { open_tokenizer((directory / "empty").string()); }),
            str("65: ", (directory / "empty").string(), ": holds no tokenizer.json"));
  std::ofstream(directory / "empty/tokenizer.model") << "sentences";
  EXPECT_EQ(message([&] { open_tokenizer((directory / "empty").string()); }),
            str("65: ", (directory / "empty").string(),
                ": holds no tokenizer.json, but tokenizer.model, of which the package transformers "
                "makes one: AutoTokenizer.from_pretrained(\"",
                (directory / "empty").string(), "\").save_pretrained(\"DIR\")"));
  fs::create_directory(directory / "mistral");
  std::ofstream(directory / "mistral/tekken.json") << "{}";
  EXPECT_NE(message([&] {
              open_tokenizer((directory / "mistral").string());
            }).find("but tekken.json, of which the package transformers makes one"),
            std::string::npos);
  // The first is how Llama 2's begins, and Llama 3's file of the same name is a rank file.
  const std::pair<std::string, const char*> others[] = {
      {{"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", 16}, "a SentencePiece model"},
      {"IQ== 0\nIg== 1\n", "a rank file, as tiktoken's"},
      {str(R"({"config": {}, "about": ")", std::string(5000, 'x'),
           R"(", "vocab": [{"rank": 0, "token_bytes": "IQ=="}]})"),
       "a tekken.json"}};
  for (const auto& [content, kind] : others) {
    const auto file = directory / "empty/tokenizer.model";
    std::ofstream(file, std::ios::binary) << content;
    EXPECT_EQ(message([&] { open_tokenizer(file.string()); }),
              str("65: ", file.string(), ": ", kind,
                  "; expected a tokenizer.json. The package transformers makes one: "
                  "AutoTokenizer.from_pretrained(\"",
                  (directory / "empty").string(), "\").save_pretrained(\"DIR\")"));
  }
  // Blank lines, and a token of that name, are those of a tokenizer.json.
  for (const char* json : {"\n\n\n{\"model\": 3}", "\n{\n  \"model\": 3}",
                           "{\"added_tokens\": [{\"content\": \"token_bytes\"}]}"}) {
    std::ofstream(directory / "other.json") << json;
    EXPECT_EQ(message([&] {
                open_tokenizer((directory / "other.json").string());
              }).find("; expected a tokenizer.json"),
              std::string::npos)
        << json;
  }
  std::ofstream(path / "tokenizer_config.json") << R"({"bos_token": 3})";
  EXPECT_EQ(message([&] { open_tokenizer(path.string()); }),
            str("65: ", (path / "tokenizer_config.json").string(),
                ": expected a string, found an integer"));
}

}  // namespace
}  // namespace lockstep::testing

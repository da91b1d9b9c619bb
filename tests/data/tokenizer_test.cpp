#include "data/tokenizer.h"

#include <fstream>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "data/tokenizer_files.h"
#include "tests/files.h"

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
  ASSERT_EQ(tokenizer_files(path.string()).size(), 1u);
  EXPECT_EQ(tokenizer_files(path.string()).front().path, path / "tokenizer.json");
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
      "65: /nowhere/gpt2: no such tokenizer; expected bytes, a tokenizer's file, or a directory "
      "that holds one");
  fs::create_directory(directory / "empty");
  EXPECT_EQ(message([&] { open_tokenizer((directory / "empty").string()); }),
            str("65: ", (directory / "empty").string(),
                ": holds no tokenizer; expected tokenizer.json, tekken.json, qwen.tiktoken or "
                "tokenizer.model"));
  for (const char* name : {"vocab.json", "merges.txt"})
    std::ofstream(directory / "empty" / name) << "{}";
  EXPECT_NE(message([&] { open_tokenizer((directory / "empty").string()); })
                .find(str("The package transformers makes a tokenizer.json of its vocab.json, "
                          "merges.txt and config.json: AutoTokenizer.from_pretrained(\"",
                          (directory / "empty").string(), "\").save_pretrained(\"",
                          (directory / "empty").string(), "\")")),
            std::string::npos);
  // So Llama 2's begins. Llama 3's file of the same name is a rank file, which is read.
  const auto model = directory / "empty/tokenizer.model";
  std::ofstream(model, std::ios::binary)
      << std::string("\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", 16);
  EXPECT_EQ(message([&] { open_tokenizer((directory / "empty").string()); }),
            str("65: ", model.string(),
                ": a SentencePiece model; expected a tokenizer.json. Copy it alone to "
                "DIR/tokenizer.model and convert it there, with the packages transformers, "
                "sentencepiece and protobuf: "
                "AutoTokenizer.from_pretrained(\"DIR\").save_pretrained(\"DIR\")"));
  std::ofstream(path / "tokenizer_config.json") << R"({"bos_token": 3})";
  EXPECT_EQ(message([&] { open_tokenizer(path.string()); }),
            str("65: ", (path / "tokenizer_config.json").string(),
                ": expected a string, found an integer"));
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

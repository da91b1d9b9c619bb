#include "data/tokenizer/rank_file.h"

#include <fstream>
#include <gtest/gtest.h>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "tests/wording.h"

namespace lockstep::testing::rank_file_test {

namespace fs = std::filesystem;

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    const auto count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k)
      text += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// Those of bytes, then `more`, then as many that no text has as there are to be.
std::vector<std::string> ranks(std::vector<std::string> more, std::size_t count) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), more.begin(), more.end());
  while (tokens.size() < count)
    tokens.push_back(str("\xff\xfe", tokens.size()));
  return tokens;
}

std::string rank_file(const std::vector<std::string>& tokens) {
  std::string text;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank)
    text += str(base64(tokens[rank]), ' ', rank, '\n');
  return text;
}

constexpr std::size_t kLlama3 = 128'000, kQwen = 151'643;
// 256 to 262.
const std::vector<std::string> kMore{"ab", "bc", "abc", "aa", " b", "\xc3\xa9", "12"};

class RankFiles : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name, std::ios::binary) << text;
    return directory_ / name;
  }
  static void expect_refused(const std::string& name, const std::string& text,
                             std::initializer_list<std::string> pins) {
    expect_refusal<DataError>("data/rank_file", name, pins,
                              [&] { parse_tokenizer(text, "t.model"); });
  }
  TemporaryDirectory directory_;
};

using Ids = std::vector<std::int32_t>;

TEST_F(RankFiles, llama_3_files_merge_the_lowest_rank_and_have_its_special_tokens) {
  write("tokenizer.model", rank_file(ranks(kMore, kLlama3)));
  const auto tokenizer = open_tokenizer(directory_.path().string());
  const auto& about = tokenizer->about();
  EXPECT_EQ(about.vocabulary, 128'256);
  EXPECT_EQ(about.document_token, 128'000);
  EXPECT_EQ(about.end_token, 128'001);
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{258}));        // a word that is a token
  EXPECT_EQ(tokenizer->encode("abcd"), (Ids{258, 'd'}));  // ab, then abc
  EXPECT_EQ(tokenizer->encode("xbca"), (Ids{'x', 257, 'a'}));
  EXPECT_EQ(tokenizer->encode("aaa b"), (Ids{259, 'a', 260}));  // the leftmost of equal ones
  EXPECT_EQ(tokenizer->encode("\xc3\xa9"), (Ids{261}));
  EXPECT_EQ(tokenizer->encode("12"), (Ids{262}));  // up to three digits are a word
  EXPECT_EQ(tokenizer->encode("<|begin_of_text|>ab<|eot_id|>"), (Ids{128'000, 256, 128'009}));
  EXPECT_EQ(tokenizer->last_cut("one two"), 3u);  // its pattern is known
  EXPECT_EQ(tokenizer->bytes_of(128'255), "<|reserved_special_token_245|>");
  EXPECT_EQ(tokenizer->decode(Ids{128'000, 258, 261}), "abc\xc3\xa9");
  // The members of a configuration stand in for those of the kind, one by one.
  write("tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
  const auto configured = open_tokenizer(directory_.path().string());
  EXPECT_EQ(configured->about().document_token, 128'000);
  EXPECT_EQ(configured->about().end_token, 128'009);
}

TEST_F(RankFiles, qwen_files_have_its_special_tokens_and_the_normal_form) {
  write("qwen.tiktoken", rank_file(ranks(kMore, kQwen)));
  const auto tokenizer = open_tokenizer(directory_.path().string());
  EXPECT_EQ(tokenizer->about().vocabulary, 151'851);
  EXPECT_EQ(tokenizer->about().document_token, 151'643);
  EXPECT_EQ(tokenizer->encode("<|im_end|>"), (Ids{151'645}));
  EXPECT_EQ(tokenizer->encode("<|extra_204|>"), (Ids{151'850}));
  EXPECT_EQ(tokenizer->encode("e\xcc\x81"), (Ids{261}));  // NFC
  EXPECT_EQ(tokenizer->encode("12"), (Ids{'1', '2'}));    // each digit is a word
}

TEST_F(RankFiles, broken_files_and_other_models_are_an_error) {
  expect_refused("another model", "YQ== 0\nYg== 1\n", {"2 tokens", "128000", "151643"});
  expect_refused("a gap", "YQ== 0\n\n\r\nYg== 3", {"t.model: line 4: ", "3"});  // not blank lines
  expect_refused("no rank", "YQ== 0\nYg=\n", {"t.model: line 2: "});
  for (const char* token : {"Y", "Yg", "Yg=", "Y===", "====", "Yg=a", "Y!=="})
    expect_refused(str("token ", token), str("YQ== 0\n", token, " 1\n"),
                   {"t.model: line 2: ", str('"', token, '"')});
  expect_refused("a long token", rank_file({"a", std::string(257, 'x')}),
                 {"t.model: line 2: ", "257", "256"});
  auto tokens = ranks(kMore, kLlama3);
  tokens[1000] = "ab";
  expect_refused("a token twice", rank_file(tokens), {"1000"});
}

// A tekken.json whose config, tokens and further members are given.
std::string tekken(const std::string& config, const std::vector<std::string>& tokens,
                   const std::string& members = "") {
  std::string vocabulary;
  for (std::size_t rank = 0; rank < tokens.size(); ++rank)
    vocabulary += str(rank == 0 ? "" : ",", R"({"rank": )", rank, R"(, "token_bytes": ")",
                      base64(tokens[rank]), R"(", "token_str": null})");
  return str(R"({"config": {"pattern": "[^ ]+| ", )", config, R"(}, "vocab": [)", vocabulary, "]",
             members, "}");
}

TEST_F(RankFiles, tekken_has_special_tokens_first_and_part_of_its_ranks) {
  write("tekken.json", tekken(R"("default_vocab_size": 279, "default_num_special_tokens": 20,
                                 "version": "v3")",
                              ranks(kMore, 263)));
  const auto tokenizer = open_tokenizer(directory_.path().string());
  const auto& about = tokenizer->about();
  EXPECT_EQ(about.vocabulary, 279);
  EXPECT_EQ(about.document_token, 1);
  EXPECT_EQ(about.end_token, 2);
  EXPECT_EQ(tokenizer->encode("abcd"), (Ids{278, 20 + 'd'}));
  EXPECT_EQ(tokenizer->encode("aa"), (Ids{20 + 'a', 20 + 'a'}));  // beyond the vocabulary
  EXPECT_EQ(tokenizer->encode("[INST]"), (Ids{3}));
  EXPECT_EQ(tokenizer->bytes_of(19), "[TOOL_CONTENT]");
}

TEST_F(RankFiles, tekken_names_its_special_tokens) {
  const auto config = [](const char* version) {
    return str(R"("default_vocab_size": 260, "default_num_special_tokens": 4, "version": ")",
               version, '"');
  };
  const std::string special = R"(, "special_tokens": [{"rank": 1, "token_str": "<s>", "is_control":
      true}, {"rank": 2, "token_str": "</s>", "is_control": true}])";
  write("tekken.json", tekken(config("v11"), ranks({}, 256), special));
  const auto tokenizer = open_tokenizer(directory_.path().string());
  EXPECT_EQ(tokenizer->bytes_of(0), "<SPECIAL_0>");
  EXPECT_EQ(tokenizer->bytes_of(2), "</s>");
  EXPECT_EQ(tokenizer->about().document_token, 1);
  expect_refused("no special tokens", tekken(config("v11"), ranks({}, 256)),
                 {"special_tokens", "v8", "v1 to v7"});
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"a special rank twice",
       R"({"rank": 1, "token_str": "<s>"}, {"rank": 1, "token_str": "<t>"})", "rank 1"},
      {"a large special rank", R"({"rank": 4, "token_str": "<s>"})", "\"rank\" is 4"},
      {"a special token twice",
       R"({"rank": 1, "token_str": "<s>"}, {"rank": 2, "token_str": "<s>"})", "\"<s>\""},
      {"no name", R"({"rank": 1, "token_str": ""})", "rank 1"}};
  for (const auto& [name, tokens, pin] : cases)
    expect_refused(
        name, tekken(config("v3"), ranks({}, 256), str(R"(, "special_tokens": [)", tokens, "]")),
        {"t.model: ", pin});
  expect_refused("many special tokens",
                 tekken(R"("default_vocab_size": 100000, "default_num_special_tokens": 65537)", {}),
                 {"\"default_num_special_tokens\" is 65537"});
  EXPECT_NO_THROW(parse_tokenizer(tekken(config("v3"), ranks({}, 256)), "t.model"));
  auto tokens = ranks({}, 256);
  tokens[7] = "";
  expect_refused("an empty token", tekken(config("v3"), tokens), {"vocab: token 7: "});
  tokens.pop_back();
  expect_refused("few tokens", tekken(config("v3"), tokens),
                 {"config.default_vocab_size 260", "259", "255"});
}

TEST_F(RankFiles, unknown_files_are_an_error) {
  for (const char* text : {"", "GGUF\3", "some text", "\xef\xbb\xbfYQ== 0\n", "\n \n\n"})
    EXPECT_TRUE(
        message_of<DataError>([&] { parse_tokenizer(text, "t.model"); }).starts_with("t.model: "))
        << text;
  for (const char* json : {"{}", "[]", "{\"vocab\": {}}", "{\"YQ==\": 0\n}"})
    expect_refused(str("json ", json), json, {"t.model: ", "\"model\"", "\"vocab\""});
}

}  // namespace lockstep::testing::rank_file_test

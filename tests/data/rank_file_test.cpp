#include "data/rank_file.h"

#include <fstream>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/tokenizer.h"
#include "data/tokenizer_files.h"
#include "tests/files.h"

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
  std::string refusal(const std::string& text) {
    try {
      parse_tokenizer(text, "t.model");
    } catch (const DataError& error) {
      return error.what();
    }
    return "taken";
  }
  TemporaryDirectory directory_;
};

using Ids = std::vector<std::int32_t>;

TEST_F(RankFiles, of_llama_3_merge_the_lowest_rank_and_have_its_special_tokens) {
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
}

TEST_F(RankFiles, of_qwen_have_its_special_tokens_and_the_normal_form) {
  write("qwen.tiktoken", rank_file(ranks(kMore, kQwen)));
  const auto tokenizer = open_tokenizer(directory_.path().string());
  EXPECT_EQ(tokenizer->about().vocabulary, 151'851);
  EXPECT_EQ(tokenizer->about().document_token, 151'643);
  EXPECT_EQ(tokenizer->encode("<|im_end|>"), (Ids{151'645}));
  EXPECT_EQ(tokenizer->encode("<|extra_204|>"), (Ids{151'850}));
  EXPECT_EQ(tokenizer->encode("e\xcc\x81"), (Ids{261}));  // NFC
  EXPECT_EQ(tokenizer->encode("12"), (Ids{'1', '2'}));    // each digit is a word
}

TEST_F(RankFiles, that_are_broken_or_of_another_model_are_refused) {
  EXPECT_EQ(
      refusal("YQ== 0\nYg== 1\n"),
      "t.model: a rank file of 2 tokens; expected 128000 (Llama 3) or 151643 (Qwen). Lockstep "
      "knows the pattern and the special tokens of these two only. Give the tokenizer.json of "
      "the same model");
  EXPECT_EQ(refusal("YQ== 0\n\n\r\nYg== 3"),  // blank lines are none
            "t.model: line 4: rank 3, expected 1: ranks must be 0, 1, 2, ... in order");
  EXPECT_EQ(refusal("YQ== 0\nYg== 2\n"),
            "t.model: line 2: rank 2, expected 1: ranks must be 0, 1, 2, ... in order");
  EXPECT_EQ(refusal("YQ== 0\nYg=\n"),
            "t.model: line 2: expected a token in base64, a space and its rank");
  for (const char* token : {"Y", "Yg", "Yg=", "Y===", "====", "Yg=a", "Y!=="})
    EXPECT_EQ(refusal(str("YQ== 0\n", token, " 1\n")),
              str("t.model: line 2: \"", token, "\" is no token in base64"));
  EXPECT_EQ(refusal(rank_file({"a", std::string(257, 'x')})),
            "t.model: line 2: a token of 257 bytes; expected at most 256");
  auto tokens = ranks(kMore, kLlama3);
  tokens[1000] = "ab";
  EXPECT_EQ(refusal(rank_file(tokens)), "t.model: rank 1000 has the same token as an earlier rank");
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

TEST_F(RankFiles, tekken_has_special_tokens_in_front_and_part_of_its_ranks) {
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
  EXPECT_EQ(refusal(tekken(config("v11"), ranks({}, 256))),
            "t.model: no special_tokens, which files of version v8 and later have; expected them, "
            "or config.version v1 to v7");
  EXPECT_EQ(refusal(tekken(config("v3"), ranks({}, 256), R"(, "special_tokens": [
      {"rank": 1, "token_str": "<s>"}, {"rank": 1, "token_str": "<t>"}])")),
            "t.model: two special tokens have the rank 1");
  EXPECT_EQ(refusal(tekken(config("v3"), ranks({}, 256), R"(, "special_tokens": [
      {"rank": 4, "token_str": "<s>"}])")),
            "t.model: \"rank\" is 4, expected 0 to 3");
  EXPECT_EQ(refusal(tekken(config("v3"), ranks({}, 256), R"(, "special_tokens": [
      {"rank": 1, "token_str": "<s>"}, {"rank": 2, "token_str": "<s>"}])")),
            "t.model: two special tokens are \"<s>\"");
  EXPECT_EQ(refusal(tekken(config("v3"), ranks({}, 256), R"(, "special_tokens": [
      {"rank": 1, "token_str": ""}])")),
            "t.model: the special token of rank 1 has no name");
  EXPECT_EQ(
      refusal(tekken(R"("default_vocab_size": 100000, "default_num_special_tokens": 65537)", {})),
      "t.model: \"default_num_special_tokens\" is 65537, expected 0 to 65536");
}

TEST_F(RankFiles, what_is_none_of_the_kinds_is_said) {
  const std::string none = "t.model: no tokenizer.json, tekken.json or rank file";
  for (const char* text : {"", "GGUF\3", "some text", "\xef\xbb\xbfYQ== 0\n", "\n \n\n"})
    EXPECT_TRUE(refusal(text).starts_with(none + ": at byte ")) << refusal(text);
  for (const char* json : {"{}", "[]", "{\"vocab\": {}}", "{\"YQ==\": 0\n}"})
    EXPECT_EQ(refusal(json), none +
                                 "; expected a JSON object with \"model\", or with the list "
                                 "\"vocab\"");
}

TEST_F(RankFiles, the_members_of_a_configuration_stand_in_for_those_of_the_kind_one_by_one) {
  write("tokenizer.model", rank_file(ranks(kMore, kLlama3)));
  write("tokenizer_config.json", R"({"eos_token": "<|eot_id|>"})");
  const auto tokenizer = open_tokenizer(directory_.path().string());
  EXPECT_EQ(tokenizer->about().document_token, 128'000);
  EXPECT_EQ(tokenizer->about().end_token, 128'009);
}

TEST_F(RankFiles, tekken_that_is_broken_is_refused) {
  const std::string config =
      R"("default_vocab_size": 260, "default_num_special_tokens": 4, "version": "v3")";
  EXPECT_EQ(refusal(tekken(config, ranks({}, 256))), "taken");
  auto tokens = ranks({}, 256);
  tokens[7] = "";
  EXPECT_EQ(refusal(tekken(config, tokens)), "t.model: vocab: token 7: \"\" is no token in base64");
  tokens.pop_back();
  EXPECT_EQ(
      refusal(tekken(config, tokens)),
      "t.model: config.default_vocab_size 260 with 4 special tokens; expected at most 259, as "
      "vocab has 255 tokens");
}

}  // namespace lockstep::testing::rank_file_test

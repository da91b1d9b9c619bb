#include "data/tokenizer_json.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep {
namespace {

// A file with the members given; `model` without the vocabulary of bytes.
std::string file(const std::string& members) {
  return "{" + members + "}";
}
const std::string kWords = R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false})";
const std::string kModel =
    R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})";

std::string refusal(const std::string& text) {
  try {
    parse_tokenizer_json(text, "t.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "taken";
}

TEST(TokenizerJson, is_read) {
  const auto json = parse_tokenizer_json(
      file(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]},
              "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": true},
                {"type": "Split", "pattern": {"String": "a.b"}, "behavior": "Removed", "invert": false},
                {"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Removed", "invert": true},
                {"type": "ByteLevel", "add_prefix_space": true, "use_regex": false}]},
              "added_tokens": [{"id": 7, "content": "<s>", "single_word": false, "lstrip": true,
                "rstrip": false, "normalized": false, "special": true}],
              "model": {"type": "BPE", "dropout": null, "ignore_merges": true, "vocab":
                {"a": 0, "\u0120": 1, "a\u0120": 2, "<s>": 7}, "merges": [["a", "\u0120"]]})"),
      "t.json");
  EXPECT_EQ(json.forms, (std::vector<NormalForm>{NormalForm::nfd, NormalForm::nfc}));
  using Kind = TokenizerJson::Step::Kind;
  const std::vector<std::pair<Kind, std::string>> expected{{Kind::isolate, R"(\p{N})"},
                                                           {Kind::drop_matches, R"(a\.b)"},
                                                           {Kind::keep_matches, R"(\w+)"},
                                                           {Kind::prefix_space, ""}};
  ASSERT_EQ(json.steps.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(json.steps[i].kind, expected[i].first) << i;
    EXPECT_EQ(json.steps[i].pattern, expected[i].second) << i;
  }
  EXPECT_TRUE(json.whole_words);
  // U+0120 writes a space; an added token is none of the model's.
  const std::unordered_map<std::string, std::int32_t> tokens{{"a", 0}, {" ", 1}, {"a ", 2}};
  EXPECT_EQ(json.tokens, tokens);
  ASSERT_EQ(json.merges.size(), 1u);
  EXPECT_EQ(json.merges[0].merged, 2);
  ASSERT_EQ(json.added.size(), 1u);
  EXPECT_TRUE(json.added[0].lstrip && json.added[0].special && !json.added[0].normalized);
  EXPECT_EQ(json.find("<s>"), 7);
  EXPECT_EQ(json.find("<t>"), -1);
  EXPECT_EQ(json.vocabulary(), 8);
}

TEST(TokenizerJson, an_added_token_may_be_one_of_the_vocabulary) {
  const auto with = [](const std::string& added) {
    return parse_tokenizer_json(
        file(kWords + R"(, "added_tokens": [)" + added + R"(], "model": {"vocab": {"a": 0, "b": 1,
             "ab": 2, "aba": 3, "<\u4e00>": 4}, "merges": ["a b", "ab a"]})"),
        "t.json");
  };
  const std::string han = R"({"id": 4, "content": "<\u4e00>", "special": true})";
  const auto usual = with(han + R"(, {"id": 2, "content": "ab"})");
  const std::unordered_map<std::string, std::int32_t> tokens{
      {"a", 0}, {"b", 1}, {"ab", 2}, {"aba", 3}};
  EXPECT_EQ(usual.tokens, tokens);
  EXPECT_EQ(usual.merges.size(), 2u);
  // No merge makes a special one: a text that is not to be trusted would then name it.
  const auto special = with(han + R"(, {"id": 2, "content": "ab", "special": true})");
  EXPECT_FALSE(special.tokens.contains("ab"));
  EXPECT_TRUE(special.merges.empty());
}

// The package `tokenizers` would give them the ids 3 and 4.
TEST(TokenizerJson, added_tokens_after_a_gap_of_ids_keep_the_ids_of_the_file) {
  const auto json =
      parse_tokenizer_json(file(kWords + R"(, "added_tokens": [{"id": 300, "content": "<s>"},
                                          {"id": 305, "content": "<t>"}],)" +
                                kModel),
                           "t.json");
  EXPECT_EQ(json.find("<s>"), 300);
  EXPECT_EQ(json.find("<t>"), 305);
  EXPECT_EQ(json.vocabulary(), 306);
}

TEST(TokenizerJson, what_no_byte_level_bpe_has_is_refused) {
  EXPECT_EQ(refusal(file(kWords + "," + kModel)), "taken");
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "t.json: pre_tokenizer: expected ByteLevel; of tokenizers only byte-level BPE is read"},
      {R"("normalizer": {"type": "Lowercase"})",
       "t.json: normalizer: \"Lowercase\", expected NFC, NFD, NFKC, NFKD or a Sequence of these"},
      {R"("pre_tokenizer": {"type": "Metaspace"})",
       "t.json: pre_tokenizer: \"Metaspace\", expected ByteLevel, Split, Digits or a Sequence"},
      {R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})",
       "t.json: pre_tokenizer: Digits behind ByteLevel"},
      {R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "MergedWithNext"})",
       "t.json: pre_tokenizer: a Split of behavior \"MergedWithNext\", expected Isolated or "
       "Removed"},
      {kWords + R"(, "model": {"type": "Unigram"})", "t.json: model: \"Unigram\", expected BPE"},
      {R"("normalizer": {"type": "Precompiled"}, "model": {"type": "Unigram"})",  // T5
       "t.json: model: \"Unigram\", expected BPE"},
      {R"("normalizer": {"type": "BertNormalizer"}, "model": {"type": "WordPiece"})",
       "t.json: model: \"WordPiece\", expected BPE"},
      {R"("normalizer": {"type": "Prepend"}, "model": {"type": "BPE", "byte_fallback": true})",
       "t.json: model: byte_fallback, which no byte-level BPE has"},  // Llama 2
      {kWords + R"(, "model": {"byte_fallback": true})",
       "t.json: model: byte_fallback, which no byte-level BPE has"},
      {kWords + R"(, "model": {"dropout": 0.1})",
       "t.json: model: dropout makes tokens random; set it to null"},
      {kWords + R"(, "model": {"end_of_word_suffix": "</w>"})",
       "t.json: model: end_of_word_suffix \"</w>\", which no byte-level BPE has"},
      {kWords + R"(, "model": {"vocab": {"a": -1}, "merges": []})",
       "t.json: model: the id -1 of \"a\", expected 0 to 16777215"},
      {kWords + R"(, "model": {"vocab": {"\u4e00": 1}, "merges": []})",
       "t.json: model: \"\xe4\xb8\x80\" has a character that stands for no byte"},
      {kWords + R"(, "model": {"vocab": {"a": 0, "b": 1}, "merges": ["a b"]})",
       "t.json: model: merge 1: \"ab\" is no token"},
      {kWords + R"(, "model": {"vocab": {"a": 0, "aa": 1}, "merges": ["a a", "a a a"]})",
       "t.json: model: merge 2: \"a a a\", expected two parts and a space between"},
      {kWords + R"(, "model": {"vocab": {"a": 0}, "merges": [["a"]]})",
       "t.json: model: merge 1: expected two parts"},
      {kWords + R"(, "model": {"vocab": {"a": 0, "b": 0}, "merges": []})",
       "t.json: model: two tokens have the id 0"},
      {kWords +
           R"(, "added_tokens": [{"id": 0, "content": "<s>"}], "model": {"vocab": {"a": 0}, "merges": []})",
       "t.json: model: two tokens have the id 0"},
      {kWords +
           R"(, "added_tokens": [{"id": 1, "content": "a"}], "model": {"vocab": {"a": 0}, "merges": []})",
       "t.json: model: the added token \"a\" has the id 1, and 0 in the vocabulary"},
      {kWords + R"(, "added_tokens": [{"id": 99999999, "content": "<s>"}])",
       "t.json: added_tokens: the id 99999999 of \"<s>\", expected 0 to 16777215"},
  };
  for (const auto& [members, expected] : cases)
    EXPECT_EQ(refusal(file(members)), expected) << members;
}

}  // namespace
}  // namespace lockstep

#include "data/tokenizer/tokenizer_json.h"

#include <gtest/gtest.h>

#include "data/tokenizer/tokenizer_files.h"
#include "tests/wording.h"

namespace lockstep::testing::tokenizer_json_test {

// A file with the members given; `model` without the vocabulary of bytes.
std::string file(const std::string& members) {
  return "{" + members + "}";
}
const std::string kWords = R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false})";
const std::string kModel =
    R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})";

void expect_refused(const std::string& name, const std::string& text,
                    std::initializer_list<std::string> pins) {
  expect_refusal<DataError>("data/tokenizer_json", name, pins,
                            [&] { parse_tokenizer(text, "t.json"); });
}

TEST(TokenizerJson, supported_files_are_read) {
  const auto json = parse_tokenizer(
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
  ASSERT_EQ(json.normalizers.size(), 2u);
  EXPECT_EQ(json.normalizers[0].form, NormalForm::nfd);
  EXPECT_EQ(json.normalizers[1].form, NormalForm::nfc);
  using Kind = BpeDefinition::Step::Kind;
  const std::vector<std::pair<Kind, std::string>> expected{{Kind::isolate, R"(\p{N})"},
                                                           {Kind::drop_matches, R"(a\.b)"},
                                                           {Kind::keep_matches, R"(\w+)"},
                                                           {Kind::prefix, ""}};
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

TEST(TokenizerJson, an_added_token_may_be_in_the_vocabulary) {
  const auto with = [](const std::string& added) {
    return parse_tokenizer(
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
      parse_tokenizer(file(kWords + R"(, "added_tokens": [{"id": 300, "content": "<s>"},
                                          {"id": 305, "content": "<t>"}],)" +
                           kModel),
                      "t.json");
  EXPECT_EQ(json.find("<s>"), 300);
  EXPECT_EQ(json.find("<t>"), 305);
  EXPECT_EQ(json.vocabulary(), 306);
}

// The decoder, vocabulary and merges of one whose words begin as characters; without MEMBER.
std::string with_bytes(const std::string& members, const std::string& decoder = R"(
    {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
                       int missing = -1) {
  std::string vocabulary = R"("\u2581": 300, "a": 301, "\u2581a": 302, "\u00e9": 303)";
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    if (static_cast<int>(byte) != missing)
      vocabulary += str(R"(, "<0x)", kHex[byte / 16], kHex[byte % 16], ">\": ", byte);
  return file(str(members, R"("decoder": )", decoder,
                  R"(, "model": {"type": "BPE", "byte_fallback": true,
      "unk_token": "<unk>", "vocab": {)",
                  vocabulary, R"(}, "merges": [["\u2581", "a"]]})"));
}

TEST(TokenizerJson, files_with_byte_fallback_are_read) {
  const auto json =
      parse_tokenizer(with_bytes(R"("normalizer": {"type": "Sequence", "normalizers": [
          {"type": "Prepend", "prepend": "\u2581"},
          {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"},)"),
                      "t.json");
  ASSERT_EQ(json.normalizers.size(), 2u);
  using Normalizer = BpeDefinition::Normalizer;
  EXPECT_EQ(json.normalizers[0].kind, Normalizer::Kind::prepend);
  EXPECT_EQ(json.normalizers[0].content, "\xe2\x96\x81");
  EXPECT_EQ(json.normalizers[1].kind, Normalizer::Kind::replace);
  ASSERT_EQ(json.steps.size(), 3u);
  EXPECT_EQ(json.steps[0].kind, BpeDefinition::Step::Kind::replace);
  EXPECT_EQ(json.steps[1].kind, BpeDefinition::Step::Kind::prefix);
  EXPECT_TRUE(json.steps[1].is_first);
  EXPECT_EQ(json.steps[2].kind, BpeDefinition::Step::Kind::merge_with_next);
  ASSERT_EQ(json.byte_tokens.size(), 256u);
  EXPECT_EQ(json.byte_tokens[255], 255);
  EXPECT_TRUE(json.drops_first_space);
  EXPECT_EQ(json.decoded.size(), 1u);
  EXPECT_EQ(json.tokens.at("\xc3\xa9"), 303);
  EXPECT_EQ(json.merges.at(0).merged, 302);
}

TEST(TokenizerJson, metaspace_of_old_versions_is_read) {
  const auto steps = [](const std::string& members) {
    return parse_tokenizer(
               with_bytes(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_",)" +
                          members + R"( "split": false},)"),
               "t.json")
        .steps.size();
  };
  EXPECT_EQ(steps(R"("add_prefix_space": true,)"), 2u);
  EXPECT_EQ(steps(R"("add_prefix_space": false,)"), 1u);
  EXPECT_EQ(steps(""), 2u);
  EXPECT_EQ(steps(R"("prepend_scheme": "never",)"), 1u);
}

TEST(TokenizerJson, an_incomplete_byte_fallback_is_an_error) {
  EXPECT_NO_THROW(parse_tokenizer(with_bytes(""), "t.json"));
  expect_refused("no ByteFallback", with_bytes("", R"({"type": "Fuse"})", 65),
                 {"t.json: decoder: "});
  expect_refused("a byte without a token", with_bytes("", R"({"type": "ByteFallback"})", 65),
                 {"t.json: model: ", "<0x41>"});
  expect_refused("both ways to bytes", with_bytes(kWords + ","), {"ByteLevel", "byte_fallback"});
  const std::pair<const char*, const char*> decoders[] = {
      {"null", "null"},
      {"Metaspace", R"({"type": "Metaspace"})"},
      {"WordPiece", R"({"type": "WordPiece"})"},
      {"Fuse first",
       R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})"},
      {"Strip of the end",
       R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
           {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})"},
      {"Strip twice", R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
           {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
           {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})"},
      {"Replace of a glob", R"({"type": "Replace", "pattern": {"Glob": " "}, "content": ""})"}};
  for (const auto& [name, decoder] : decoders)
    expect_refused(str("decoder ", name), with_bytes("", decoder), {"t.json: decoder: "});
  const std::pair<const char*, const char*> metaspaces[] = {
      {R"("_", "prepend_scheme": "last")", "\"last\""},
      {R"("_", "prepend_scheme": "first", "add_prefix_space": false)", "\"first\""},
      {R"("")", "\"\""},
      {R"("__")", "\"__\""}};
  for (const auto& [members, pin] : metaspaces)
    expect_refused(
        str("Metaspace of ", members),
        with_bytes(str(R"("pre_tokenizer": {"type": "Metaspace", "replacement": )", members, "},")),
        {"t.json: pre_tokenizer: Metaspace: ", pin});
}

TEST(TokenizerJson, unsupported_files_are_an_error) {
  const auto words_and = [](const std::string& members) { return file(kWords + "," + members); };
  const auto before_model = [](const std::string& members) { return file(members + kModel); };
  EXPECT_NO_THROW(parse_tokenizer(words_and(kModel), "t.json"));
  struct Case {
    const char *name, *pin;
    std::string text;
  };
  const Case cases[] = {
      {"no way to bytes", "byte_fallback", file(kModel)},
      {"a normalizer", "normalizer: \"Lowercase\"",
       before_model(R"("normalizer": {"type": "Lowercase"},)")},
      {"a pre_tokenizer", "pre_tokenizer: \"Whitespace\"",
       before_model(R"("pre_tokenizer": {"type": "Whitespace"},)")},
      {"ByteLevel that is not the last", "pre_tokenizer: Digits",
       before_model(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers":
                       [{"type": "ByteLevel"}, {"type": "Digits"}]},)")},
      {"a Split that joins", "\"Contiguous\"",
       before_model(R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"},
                       "behavior": "Contiguous"},)")},
      {"a Split that is inverted", "\"MergedWithNext\"",
       before_model(R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"},
                       "behavior": "MergedWithNext", "invert": true},)")},
      {"Unigram", "\"Unigram\"", words_and(R"("model": {"type": "Unigram"})")},
      {"T5", "\"Unigram\"",
       file(R"("normalizer": {"type": "Precompiled"}, "model": {"type": "Unigram"})")},
      {"BERT", "\"WordPiece\"",
       file(R"("normalizer": {"type": "BertNormalizer"}, "model": {"type": "WordPiece"})")},
      {"dropout", "model: dropout", words_and(R"("model": {"dropout": 0.1})")},
      {"a suffix", "end_of_word_suffix \"</w>\"",
       words_and(R"("model": {"end_of_word_suffix": "</w>"})")},
      {"a negative id", "-1", words_and(R"("model": {"vocab": {"a": -1}, "merges": []})")},
      {"a character of no byte", "\"\xe4\xb8\x80\"",
       words_and(R"("model": {"vocab": {"\u4e00": 1}, "merges": []})")},
      {"a merge to no token", "merge 1: \"ab\"",
       words_and(R"("model": {"vocab": {"a": 0, "b": 1}, "merges": ["a b"]})")},
      {"a merge of three", "merge 2: \"a a a\"",
       words_and(R"("model": {"vocab": {"a": 0, "aa": 1}, "merges": ["a a", "a a a"]})")},
      {"a merge of one",
       "merge 1: ", words_and(R"("model": {"vocab": {"a": 0}, "merges": [["a"]]})")},
      {"an id twice", "id 0", words_and(R"("model": {"vocab": {"a": 0, "b": 0}, "merges": []})")},
      {"an id of an added token twice", "id 0",
       words_and(R"("added_tokens": [{"id": 0, "content": "<s>"}],
                    "model": {"vocab": {"a": 0}, "merges": []})")},
      {"two ids of an added token", "\"a\" has the id 1",
       words_and(R"("added_tokens": [{"id": 1, "content": "a"}],
                    "model": {"vocab": {"a": 0}, "merges": []})")},
      {"a large id", "99999999",
       words_and(R"("added_tokens": [{"id": 99999999, "content": "<s>"}],)" + kModel)},
  };
  for (const auto& c : cases)
    expect_refused(c.name, c.text, {"t.json: ", c.pin});
}

}  // namespace lockstep::testing::tokenizer_json_test

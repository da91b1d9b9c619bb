#include "train/infer/prompts.h"

#include <gtest/gtest.h>

#include "tests/wording.h"

namespace lockstep::testing::prompts_test {

using Ids = std::vector<std::int32_t>;

constexpr const char* kReader = "train/prompts";
constexpr std::int64_t kPositions = 16;

EncodedPrompts encode(const std::vector<PromptText>& texts, std::int64_t tokens = 4,
                      const Tokenizer& tokenizer = ByteTokenizer()) {
  InputDefects odd;
  return encode_prompts(texts, tokens, tokenizer, kPositions, odd);
}

std::vector<PromptText> parse(const std::string& lines, InputDefects odd = {}) {
  return parse_prompts(lines, "p.jsonl", odd);
}

std::vector<PromptText> read(const std::filesystem::path& file) {
  InputDefects odd;
  return read_prompts(file, odd);
}

// A tokenizer without a document token.
class Startless final : public Tokenizer {
 public:
  Startless() : Tokenizer({.name = "startless", .hash = "", .vocabulary = 256}) {}
  void encode(std::string_view text, Ids& ids, Memory& memory) const override {
    if (text == "bad") throw DataError("no token for the byte 98");
    bytes_.encode(text, ids, memory);
  }
  void encode_plain(std::string_view text, Ids& ids, Memory& memory) const override {
    bytes_.encode(text, ids, memory);
  }
  std::size_t last_cut(std::string_view /*text*/) const override { return 0; }
  std::string_view bytes_of(std::int32_t id) const override { return bytes_.bytes_of(id); }
  bool is_special(std::int32_t /*id*/) const override { return false; }

 private:
  ByteTokenizer bytes_;
};

TEST(Prompts, lines_become_prompts_with_their_place) {
  const auto prompts = parse(
      "{\"prompt\": \"one\"}\r\n\n \t\r\n{\"id\": 7, \"prompt\": \"\\u00e4\\n\"}\n{\"prompt\": "
      "\"\"}");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "one");
  EXPECT_EQ(prompts[0].where, "p.jsonl: line 1");
  EXPECT_EQ(prompts[1].text, "\xc3\xa4\n");
  EXPECT_EQ(prompts[1].where, "p.jsonl: line 4");
  EXPECT_EQ(prompts[2].text, "");
}

TEST(Prompts, a_bad_line_is_an_error_that_names_file_and_line) {
  const std::string good = "{\"prompt\": \"one\"}\n\n";
  for (const std::string line :
       {"{\"prompt\": \"o", "word", "[\"prompt\"]", "\"prompt\"", "{}", "{\"text\": \"one\"}",
        "{\"prompt\": 1}", "{\"prompt\": null}", "{\"prompt\": NaN}"})
    expect_refusal<DataError>(kReader, line, {"p.jsonl: line 3: "},
                              [&] { parse(str(good, line, "\n", good)); });
  const std::tuple<const char*, std::string, std::string> files[] = {
      {"nothing", "", "p.jsonl"},
      {"an empty line", "\n", "p.jsonl"},
      {"blank lines", " \n\t\r\n", "p.jsonl"},
      {"returns", "{\"prompt\": \"a\"}\r{\"prompt\": \"b\"}\r", str("line 1: ", kReturnsAlone)},
      {"returns later", "\n{\"prompt\": \"a\"}\r\r {\"p", str("line 2: ", kReturnsAlone)},
      {"zeros", "{\"prompt\": \"a\"}\n" + std::string(512, '\0'), "16"}};
  for (const auto& [name, text, pin] : files)
    expect_refusal<DataError>(kReader, str("a file of ", name), {"p.jsonl: ", pin},
                              [&, lines = text] { parse(lines); });
}

TEST(Prompts, a_jsonl_file_has_a_prompt_per_line_and_any_other_is_one_prompt) {
  const TemporaryDirectory directory;
  const std::string line = "{\"prompt\": \"one\"}\n";
  spit(directory / "p.jsonl", line + line);
  spit(directory / "p.json", line + line);
  spit(directory / "empty", "");
  EXPECT_TRUE(holds_prompt_lines(directory / "p.jsonl"));
  EXPECT_FALSE(holds_prompt_lines(""));
  const auto lines = read(directory / "p.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].where, (directory / "p.jsonl").string() + ": line 2");
  const auto one = read(directory / "p.json");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].text, line + line);
  EXPECT_EQ(one[0].where, (directory / "p.json").string());
  EXPECT_EQ(read(directory / "empty").at(0).text, "");
  expect_refusal<DataError>(kReader, "no file", {"none"}, [&] { read(directory / "none"); });
  spit(directory / "zero", std::string("a\0b", 3));
  EXPECT_EQ(read(directory / "zero").at(0).text.size(), 3u);
  spit(directory / "zeros", std::string("one\0\0", 5));
  expect_refusal<DataError>(kReader, "zeros at the end", {(directory / "zeros").string(), "2", "3"},
                            [&] { read(directory / "zeros"); });
}

TEST(Prompts, each_begins_a_document_once) {
  const auto prompts = encode({{"ab", "a"}, {"", "b"}}).prompts;
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].ids, (Ids{256, 'a', 'b'}));
  EXPECT_EQ(prompts[1].ids, Ids{256});
  EXPECT_EQ(prompts[0].number, 0u);
  EXPECT_EQ(prompts[1].number, 1u);
  const auto bpe = open_tokenizer(LOCKSTEP_FIXTURES "/choices");
  const auto texts = std::vector<PromptText>{{"man", ""}, {"<|endoftext|>man", ""}};
  const auto named = encode(texts, 1, *bpe).prompts;
  EXPECT_EQ(named[0].ids.front(), bpe->about().document_token);
  EXPECT_GT(named[0].ids.size(), 1u);
  EXPECT_EQ(named[0].ids, named[1].ids);
}

TEST(Prompts, an_empty_prompt_without_a_document_token_is_an_error) {
  const Startless startless;
  const auto texts = [](const char* text) {
    return std::vector<PromptText>{{"a", "p: line 1"}, {text, "p: line 2"}};
  };
  EXPECT_EQ(encode(texts("bc"), 1, startless).prompts[1].ids, (Ids{'b', 'c'}));
  expect_refusal<UsageError>(kReader, "empty without a start", {"p: line 2: ", "startless"},
                             [&] { encode(texts(""), 1, startless); });
  EXPECT_EQ(message_of<DataError>([&] { encode(texts("bad"), 1, startless); }),
            "p: line 2: no token for the byte 98");  // the tokenizer's error
}

TEST(Prompts, a_prompt_without_free_positions_generates_nothing_and_others_use_theirs) {
  const auto text = [](std::size_t bytes) { return std::string(bytes, 'x'); };
  const auto [prompts, full] = encode({{text(3), ""},
                                       {text(11), ""},
                                       {text(12), ""},
                                       {text(15), "p: line 4"},
                                       {text(100), "p: line 5"}},
                                      /*tokens=*/4);
  EXPECT_EQ(prompts[0].tokens, 4);
  EXPECT_EQ(prompts[1].tokens, 4);  // to the last position
  EXPECT_EQ(prompts[2].tokens, 3);
  EXPECT_EQ(prompts[3].tokens, 0);
  EXPECT_EQ(prompts[4].tokens, 0);
  EXPECT_EQ(prompts[4].ids.size(), 1u) << "the others would be computed in vain";
  EXPECT_EQ(full.count, 2);
  EXPECT_EQ(full.first, "p: line 4");
  for (const std::size_t bytes : {15, 16})
    expect_refusal<UsageError>(kReader, str("a prompt of ", bytes, " bytes"),
                               {"p: line 2: ", str(bytes + 1), "16"}, [&] {
                                 encode({{text(bytes), "p: line 2"}});
                               });
}

// Read like Python's json.loads(line), with a lone surrogate as U+FFFD.
TEST(Prompts, an_irregular_line_is_accepted_and_counted) {
  InputDefects odd;
  const auto prompts = parse_prompts(
      "{\"prompt\": \"a\\ud800\\ud83d\\ude00\\\\ud800\", \"score\": NaN}\n"
      "{\"x\": [-Infinity, Infinity, \"NaN\"], \"prompt\": \"\\udc00 NaN \xff\xc3\xa4\"}",
      "p.jsonl", odd);
  EXPECT_EQ(prompts[0].text, "a\xef\xbf\xbd\xf0\x9f\x98\x80\\ud800");
  EXPECT_EQ(prompts[1].text, "\xef\xbf\xbd NaN \xef\xbf\xbd\xc3\xa4");
  EXPECT_EQ(odd.text.count, 3);
  EXPECT_EQ(odd.text.first, "p.jsonl: line 1");
  EXPECT_EQ(odd.numbers.count, 3);
  EXPECT_EQ(parse("{\"prompt\":\r\"a\"}\r\n{\"prompt\": \"b\"}\r").size(), 2u);
}

TEST(Prompts, bytes_without_a_token_are_dropped_and_counted) {
  const TemporaryDirectory directory;
  spit(directory / "tokenizer.json",
       R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
           "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  InputDefects odd;
  const auto encoded =
      encode_prompts(std::vector<PromptText>{{"ab", "p: line 1"},
                                             {"a\x04\x04"
                                              "b",
                                              "p: line 2"}},
                     1, *open_tokenizer((directory / "tokenizer.json").string()), kPositions, odd);
  EXPECT_EQ(encoded.prompts[1].ids, (Ids{0, 1}));
  EXPECT_EQ(odd.bytes.count, 2);
  EXPECT_EQ(odd.bytes.first, "p: line 2");
}

}  // namespace lockstep::testing::prompts_test

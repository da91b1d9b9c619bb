#include "train/prompts.h"

#include <gtest/gtest.h>

#include "tests/files.h"

namespace lockstep::testing {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kPositions = 16;

std::vector<Prompt> encode(const std::vector<PromptText>& texts, std::int64_t tokens = 4) {
  return encode_prompts(texts, tokens, ByteTokenizer(), kPositions);
}

// Of a document that starts with no token.
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

TEST(Prompts, lines_become_prompts_that_know_where_they_stand) {
  const auto prompts = parse_prompts(
      "{\"prompt\": \"one\"}\r\n\n \t\r\n{\"id\": 7, \"prompt\": \"\\u00e4\\n\"}\n{\"prompt\": "
      "\"\"}",
      "p.jsonl");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "one");
  EXPECT_EQ(prompts[0].where, "p.jsonl: line 1");
  EXPECT_EQ(prompts[1].text, "\xc3\xa4\n");
  EXPECT_EQ(prompts[1].where, "p.jsonl: line 4");
  EXPECT_EQ(prompts[2].text, "");
}

TEST(Prompts, a_bad_line_is_refused_by_file_and_line) {
  const std::string good = "{\"prompt\": \"one\"}\n\n";
  const auto refusal = [&](const std::string& line) {
    return message_of<DataError>([&] { parse_prompts(good + line + "\n" + good, "p.jsonl"); });
  };
  for (const std::string line : {"{\"prompt\": \"o", "word", "[\"prompt\"]", "\"prompt\"", "{}",
                                 "{\"text\": \"one\"}", "{\"prompt\": 1}", "{\"prompt\": null}"}) {
    const auto said = refusal(line);
    EXPECT_EQ(said.rfind("p.jsonl: line 3: ", 0), 0u) << line << ": " << said;
  }
  expect_contains(refusal("{}"), "prompt");
  expect_contains(refusal("{\"prompt\": 1}"), "prompt");
}

TEST(Prompts, a_file_without_a_prompt_is_refused_by_name) {
  for (const std::string lines : {"", "\n", " \n\t\r\n"})
    EXPECT_EQ(message_of<DataError>([&] { parse_prompts(lines, "p.jsonl"); }),
              "p.jsonl: holds no prompt");
}

TEST(Prompts, a_file_of_lines_is_known_by_its_name_and_any_other_is_one_prompt) {
  const TemporaryDirectory directory;
  const std::string line = "{\"prompt\": \"one\"}\n";
  spit(directory / "p.jsonl", line + line);
  spit(directory / "p.json", line + line);
  spit(directory / "empty", "");
  EXPECT_TRUE(holds_prompt_lines(directory / "p.jsonl"));
  EXPECT_FALSE(holds_prompt_lines(""));
  const auto lines = read_prompts(directory / "p.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].where, (directory / "p.jsonl").string() + ": line 2");
  const auto one = read_prompts(directory / "p.json");
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].text, line + line);
  EXPECT_EQ(one[0].where, (directory / "p.json").string());
  EXPECT_EQ(read_prompts(directory / "empty").at(0).text, "");
  expect_contains(message_of<DataError>([&] { read_prompts(directory / "none"); }), "none");
}

TEST(Prompts, each_begins_a_document_once) {
  const auto prompts = encode({{"ab", "a"}, {"", "b"}});
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].ids, (Ids{256, 'a', 'b'}));
  EXPECT_EQ(prompts[1].ids, Ids{256});
  EXPECT_EQ(prompts[0].number, 0u);
  EXPECT_EQ(prompts[1].number, 1u);
  const auto bpe = open_tokenizer(LOCKSTEP_FIXTURES "/choices");
  const auto texts = std::vector<PromptText>{{"man", ""}, {"<|endoftext|>man", ""}};
  const auto named = encode_prompts(texts, 1, *bpe, kPositions);
  EXPECT_EQ(named[0].ids.front(), bpe->about().document_token);
  EXPECT_GT(named[0].ids.size(), 1u);
  EXPECT_EQ(named[0].ids, named[1].ids);
}

TEST(Prompts, without_a_token_that_starts_documents_an_empty_one_is_refused) {
  const Startless startless;
  const auto texts = [](const char* text) {
    return std::vector<PromptText>{{"a", "p: line 1"}, {text, "p: line 2"}};
  };
  EXPECT_EQ(encode_prompts(texts("bc"), 1, startless, kPositions)[1].ids, (Ids{'b', 'c'}));
  const auto said =
      message_of<UsageError>([&] { encode_prompts(texts(""), 1, startless, kPositions); });
  EXPECT_EQ(said,
            "p: line 2: the prompt is empty, and the tokenizer startless has no token that starts "
            "documents; write some text");
  EXPECT_EQ(message_of<DataError>([&] { encode_prompts(texts("bad"), 1, startless, kPositions); }),
            "p: line 2: no token for the byte 98");
}

TEST(Prompts, one_that_leaves_no_room_is_refused_by_name_and_others_get_what_is_left) {
  const auto text = [](std::size_t bytes) { return std::string(bytes, 'x'); };
  const auto prompts =
      encode({{text(3), ""}, {text(11), ""}, {text(12), ""}, {text(15), ""}}, /*tokens=*/4);
  EXPECT_EQ(prompts[0].tokens, 4);
  EXPECT_EQ(prompts[1].tokens, 4);  // to the last position
  EXPECT_EQ(prompts[2].tokens, 3);
  EXPECT_EQ(prompts[3].tokens, 0);
  EXPECT_EQ(message_of<UsageError>([&] {
              encode({{"x", "p: line 1"}, {text(16), "p: line 2"}});
            }),
            "p: line 2: the prompt is 17 tokens, but the model has positions for 16; shorten it");
}

}  // namespace
}  // namespace lockstep::testing

#include "data/pack/inspect.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "data/pack/pack.h"
#include "data/pack/shown_text.h"
#include "tests/data/shards.h"

namespace lockstep::testing::inspect_test {

class InspectTest : public DirectoryTest {
 protected:
  // The dataset of this text, in documents between empty lines.
  std::string packed(const std::string& text, std::int64_t shard_tokens) {
    write("text", text);
    pack({.inputs = {at("text")},
          .out = at("d"),
          .document_separator = "\n\n",
          .shard_tokens = shard_tokens});
    return at("d");
  }
  // From the line on that says which tokens are shown.
  static std::string tokens_in(const std::string& text) {
    const auto place = text.find("\n\ntokens ");
    return place == std::string::npos ? text : text.substr(place + 2);
  }
  static void expect_text(const std::string& name, const std::string& text,
                          std::initializer_list<std::string> pins) {
    for (const auto& pin : pins)
      expect_contains(text, pin);
    expect_wording("data/inspect", name, text);
  }

  ByteTokenizer bytes_;
};

TEST_F(InspectTest, a_packed_text_is_described_and_shown) {
  const Dataset dataset({packed("one\n\nthree three\n\n\x1b[31m\x7f tw\xc3\xb6lf", 100)});
  const auto text = inspect(dataset, &bytes_, {}, 100);
  expect_text("packed text", text,
              {dataset.fingerprint(),
               "\n\n[256]\none\n[256]\nthree three\n[256]\n"
               "\\x1b[31m\\x7f tw\xc3\xb6lf\n"});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(InspectTest, documents_are_counted_equally_by_list_and_by_scan) {
  auto tokens = random_documents(3'000);
  write_dataset(directory_ / "d", tokens, 700);
  std::ranges::replace(tokens, 256, 50256);
  write("x.bin", gpt2_shard(tokens));
  const auto lengths = [&](const std::string& name) {
    const auto text = inspect(Dataset({at(name)}), nullptr, {}, 1);
    const auto begin = text.find("documents"), end = text.find("\n\ntokens");
    return text.substr(begin, end - begin);
  };
  EXPECT_EQ(lengths("d"), lengths("x.bin"));
}

TEST_F(InspectTest, with_a_list_a_separator_token_inside_a_text_starts_no_line) {
  const Tokens tokens{256, 'a', 'b', 'c', 256, 'd', 'e', 256};
  auto text = tokens;
  text[2] = 256;
  const auto manifest = write_dataset(directory_ / "d", tokens, 8);
  write("d/" + manifest.shards[0].file, gpt2_shard(text));
  const Dataset dataset({at("d")});
  expect_contains(inspect(dataset, &bytes_, {}, 8), "\n[256]\na[256]c\n[256]\nde\n[256]\n");
  expect_contains(inspect(dataset, nullptr, {}, 8), "[256]\n97 256 99 \n[256]\n100 101 \n[256]\n");
}

TEST_F(InspectTest, foreign_tokens_are_shown_as_ids_and_long_datasets_are_scanned_partly) {
  write("train.bin", body({5, 6, 50256, 7, 8, 9, 50256, 1}, 2));
  const Dataset dataset({at("train.bin")});
  expect_text("shard of nanoGPT", inspect(dataset, nullptr, {}, 4), {":\n5 6 [50256]\n7 \n"});
  expect_text("scanned in part", inspect(dataset, nullptr, {}, 1, 4), {" 4 tokens: 1\n"});
}

TEST_F(InspectTest, tokens_that_count_in_the_loss_are_marked) {
  write("chat.jsonl", R"({"p": "ask", "r": "say"})"
                      "\n"
                      R"({"p": "q", "r": "long response"})"
                      "\n");
  pack({.inputs = {at("chat.jsonl")},
        .out = at("d"),
        .document_separator = {},
        .shard_tokens = 11,  // the second document crosses
        .prompt_field = "p",
        .response_field = "r"});
  const Dataset dataset({at("d")});
  expect_text("with masks", inspect(dataset, &bytes_, {}, 100),
              {":\n[256]ask{+say[256]+}\n[document]\n[256]q{+long response[256]+}\n"});
  const struct {
    std::int64_t at, count;
    std::string pin;
  } cases[] = {{5, 2, ":\nk{+s[>a<]y+}\n"},
               {8, 4, ":\n[>[256]<]q{+lo+}\n"},  // the document's first token
               {10, 3, "tokens 8 to 13 around [>token 10<]"}};
  for (const auto& [at, count, pin] : cases)
    expect_text(str("with masks, around ", at), tokens_in(inspect(dataset, &bytes_, at, count)),
                {pin});
}

TEST_F(InspectTest, a_token_is_shown_in_its_document_with_a_separator_before_each) {
  // The second document crosses the end of a shard.
  const Dataset dataset({packed("one\n\nthree three\n\ntw\xc3\xb6lf", 10)});
  const struct {
    std::int64_t at, count;
    std::string shown;
  } cases[] = {
      {10, 6, "4:\n\n[256]\nthree[> <]three\n"},
      {10, 3, "4:\nree[> <]th\n"},
      {4, 4, "4:\n\n[>[256]<]\nthr\n"},
      {3, 100, "0:\n\n[256]\non[>e<]\n[256]\nthree three\n[256]\ntw\xc3\xb6lf\n"},
      {19, 2, "16:\ntw[>\\xc3<]\\xb6\n"},  // half a character
      {22, 1, "16:\nl[>f<]\n"},
      {22, 0, "16:\n\n"},
  };
  for (const auto& [at, count, shown] : cases) {
    const auto text = tokens_in(inspect(dataset, &bytes_, at, count));
    EXPECT_TRUE(text.ends_with(" " + shown)) << text;
    expect_text(str(count, " around ", at), text, {str("[>token ", at, "<]")});
  }
  for (const std::int64_t at : {-1, 23, 24})
    expect_refusal<UsageError>("data/inspect", str("--at ", at), {str("--at ", at, ": "), " 22"},
                               [&] { inspect(dataset, &bytes_, at, 1); });
}

TEST_F(InspectTest, a_token_is_shown_in_its_document_with_a_separator_after_each) {
  write("train.bin", body({5, 6, 50256, 7, 8, 9, 50256, 50256, 1, 2}, 2));
  const Dataset dataset({at("train.bin")});
  const struct {
    int document, start;
    std::string shown;
  } expected[] = {{0, 0, "[>5<] 6 [50256]\n\n"},
                  {0, 0, "5 [>6<] [50256]\n7 \n"},
                  {0, 0, "5 6 [>[50256]<]\n7 8 \n"},
                  {1, 3, "[>7<] 8 9 \n"},
                  {1, 3, "7 [>8<] 9 [50256]\n\n"},
                  {1, 3, "7 8 [>9<] [50256]\n[50256]\n\n"},
                  {1, 3, "7 8 9 [>[50256]<]\n[50256]\n1 \n"},
                  {2, 7, "[>[50256]<]\n1 2 \n"},
                  {3, 8, "[>1<] 2 \n"},
                  {3, 8, "1 [>2<] \n"}};
  for (std::int64_t at = 0; at < dataset.tokens(); ++at) {
    const auto& [document, start, shown] = expected[static_cast<std::size_t>(at)];
    for (const std::int64_t most_scanned : {4, 8, 100}) {
      const auto text = tokens_in(inspect(dataset, nullptr, at, 3, most_scanned));
      EXPECT_TRUE(text.ends_with(str(" ", start, ":\n", shown))) << text;
      // The number of a document behind what is counted is not known.
      const auto number = str("document ", document, ",");
      EXPECT_EQ(text.find(number) != std::string::npos, at < most_scanned) << text;
    }
  }
  expect_text("around 9", tokens_in(inspect(dataset, nullptr, 9, 3)), {"[>token 9<]"});
  expect_text("around 9, far away", tokens_in(inspect(dataset, nullptr, 9, 3, 4)), {});
}

TEST_F(InspectTest, a_document_start_far_away_is_searched_over_a_million_tokens) {
  constexpr std::int64_t kFar = std::int64_t{1} << 20;
  Tokens tokens(kFar + 10, 7);
  tokens[4] = 50256;
  write("train.bin", body(tokens, 2));
  const Dataset dataset({at("train.bin")});
  const auto expect_around = [&](std::int64_t at, std::int64_t most_scanned,
                                 const std::string& pin) {
    expect_text(str("a begin far before ", at, ", ", most_scanned, " scanned"),
                tokens_in(inspect(dataset, nullptr, at, 1, most_scanned)), {pin});
  };
  expect_around(kFar + 3, 8, " 5:\n7 [>7<] \n");
  expect_around(kFar + 4, 8, " 1,048,575 tokens");
  expect_around(kFar + 4, 2 * kFar, "document 1, ");
}

TEST(ShownText, control_characters_are_shown_as_bytes_and_split_characters_are_joined) {
  EXPECT_EQ(shown("a\n\tb\r\x1b[2J\x7f"), "a\n\tb\\x0d\\x1b[2J\\x7f");
  EXPECT_EQ(shown("\xc2\x9b"
                  "31m \xe2\x80\xae"
                  "evil \xe2\x81\xa6 \xe2\x80\xa8"),
            "\\xc2\\x9b"
            "31m \\xe2\\x80\\xae"
            "evil \\xe2\\x81\\xa6 \\xe2\\x80\\xa8");
  EXPECT_EQ(shown("\x9b\xff\xc3(\xf0\x9f\x98"), "\\x9b\\xff\\xc3(\\xf0\\x9f\\x98");
  EXPECT_EQ(shown("\xc3\xb6 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "\xc3\xb6 \xe2\x82\xac \xf0\x9f\x98\x80");
  ShownText text;
  text.add("\xc3");
  text.add("\xb6");
  text.mark("|");
  text.add("\xc3");
  EXPECT_EQ(text.take(), "\xc3\xb6|\\xc3");
}

}  // namespace lockstep::testing::inspect_test

#include "data/inspect.h"

#include <gtest/gtest.h>

#include "data/pack.h"
#include "data/shown_text.h"
#include "tests/data/shards.h"

namespace lockstep::testing::inspect_test {

class InspectTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  ByteTokenizer bytes_;
};

TEST_F(InspectTest, a_packed_text_is_described_and_shown) {
  spit(directory_ / "text", "one\n\nthree three\n\n\x1b[31m\x7f tw\xc3\xb6lf");
  PackOptions options;
  options.inputs = {directory_ / "text"};
  options.out = directory_ / "d";
  options.document_separator = "\n\n";
  pack(options);
  const Dataset dataset({options.out.string()});
  const auto text = inspect(dataset, &bytes_, {}, 100);
  expect_contains(text, "bytes, 16 bits a token, vocabulary 257");
  expect_contains(text, "token 256 in front of each document");
  expect_contains(text, "shards       1\n");
  expect_contains(text, "tokens       30\n");
  expect_contains(text, "fingerprint  " + dataset.fingerprint());
  expect_contains(text, "documents    3\nlengths      4 to 14 tokens, mean 10.0\n");
  expect_contains(text, "from             4             1  ####");
  expect_contains(text, "from             8             2  ####");
  expect_contains(text,
                  "tokens 0 to 30:\n\n[256]\none\n[256]\nthree three\n[256]\n"
                  "\\x1b[31m\\x7f tw\xc3\xb6lf\n");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("[>"), std::string::npos);
}

TEST_F(InspectTest, documents_are_counted_alike_by_list_and_by_scan) {
  const auto tokens = random_documents(3'000);
  write_dataset(directory_ / "d", tokens, 700);
  auto gpt2 = tokens;
  for (auto& token : gpt2)
    if (token == 256) token = 50256;
  spit(directory_ / "x.bin", gpt2_shard(gpt2));
  const auto lengths = [](const std::string& text) {
    const auto begin = text.find("documents"), end = text.find("\n\ntokens");
    return text.substr(begin, end - begin);
  };
  const auto listed = inspect(Dataset({(directory_ / "d").string()}), nullptr, {}, 1);
  const auto scanned = inspect(Dataset({(directory_ / "x.bin").string()}), nullptr, {}, 1);
  EXPECT_EQ(lengths(listed), lengths(scanned));
}

TEST_F(InspectTest, where_a_list_ends_documents_the_token_within_a_text_stands_in_its_line) {
  const Tokens tokens{256, 'a', 'b', 'c', 256, 'd', 'e', 256};
  auto text = tokens;
  text[2] = 256;
  const auto manifest = write_dataset(directory_ / "d", tokens, 8);
  spit(directory_ / "d" / manifest.shards[0].file, gpt2_shard(text));
  const Dataset dataset({(directory_ / "d").string()});
  expect_contains(inspect(dataset, &bytes_, {}, 8), "\n[256]\na[256]c\n[256]\nde\n[256]\n");
  expect_contains(inspect(dataset, nullptr, {}, 8), "[256]\n97 256 99 \n[256]\n100 101 \n[256]\n");
}

TEST_F(InspectTest, tokens_of_others_are_shown_as_ids_and_a_long_dataset_is_scanned_in_part) {
  spit(directory_ / "train.bin", body({5, 6, 50256, 7, 8, 9, 50256, 1}, 2));
  const Dataset dataset({(directory_ / "train.bin").string()});
  const auto text = inspect(dataset, nullptr, {}, 4);
  expect_contains(text, "nanoGPT, 16 bits a token, vocabulary unknown");
  expect_contains(text, "token 50256 behind each document");
  expect_contains(text, "documents    3\nlengths      1 to 4 tokens, mean 2.7\n");
  expect_contains(text, "tokens 0 to 4:\n5 6 [50256]\n7 \n");
  expect_contains(inspect(dataset, nullptr, {}, 1, 4), "documents    in the first 4 tokens: 1\n");
}

TEST_F(InspectTest, what_counts_in_the_loss_is_marked_wherever_it_begins) {
  spit(directory_ / "chat.jsonl", R"({"p": "ask", "r": "say"})"
                                  "\n"
                                  R"({"p": "q", "r": "long response"})"
                                  "\n");
  PackOptions options;
  options.inputs = {directory_ / "chat.jsonl"};
  options.out = directory_ / "d";
  options.prompt_field = "p";
  options.response_field = "r";
  options.shard_tokens = 11;  // the second document crosses
  pack(options);
  const Dataset dataset({options.out.string()});
  const auto text = inspect(dataset, &bytes_, {}, 100);
  expect_contains(text, "listed beside the shards");
  expect_contains(text,
                  "tokens 0 to 24, {+what counts in the loss+}:\n"
                  "[256]ask{+say[256]+}\n[document]\n[256]q{+long response[256]+}\n");
  expect_contains(
      inspect(dataset, &bytes_, 5, 2),
      "tokens 3 to 7 around [>token 5<], of document 0, which starts at token 0, {+what "
      "counts in the loss+}:\nk{+s[>a<]y+}\n");
  expect_contains(inspect(dataset, &bytes_, 8, 4),
                  ":\n[>[256]<]q{+lo+}\n");  // the document's first token
  expect_contains(inspect(dataset, &bytes_, 10, 3),
                  "tokens 8 to 13 around [>token 10<], of document 1, which starts at token 8");
}

TEST_F(InspectTest, a_token_is_shown_in_its_document_where_a_token_stands_in_front_of_each) {
  spit(directory_ / "text", "one\n\nthree three\n\ntw\xc3\xb6lf");
  PackOptions options;
  options.inputs = {directory_ / "text"};
  options.out = directory_ / "d";
  options.document_separator = "\n\n";
  options.shard_tokens = 10;  // the second document crosses
  pack(options);
  const Dataset dataset({options.out.string()});
  const auto shown = [&](std::int64_t at, std::int64_t count) {
    const auto text = inspect(dataset, &bytes_, at, count);
    return text.substr(text.find("\n\ntokens ") + 2);
  };
  EXPECT_EQ(shown(10, 6),
            "tokens 4 to 16 around [>token 10<], of document 1, which starts at token 4:\n"
            "\n[256]\nthree[> <]three\n");
  EXPECT_EQ(shown(10, 3),
            "tokens 7 to 13 around [>token 10<], of document 1, which starts at token 4:\n"
            "ree[> <]th\n");
  EXPECT_EQ(shown(4, 4),
            "tokens 4 to 8 around [>token 4<], of document 1, which starts at token 4:\n"
            "\n[>[256]<]\nthr\n");
  EXPECT_EQ(shown(3, 100),
            "tokens 0 to 23 around [>token 3<], of document 0, which starts at token 0:\n"
            "\n[256]\non[>e<]\n[256]\nthree three\n[256]\ntw\xc3\xb6lf\n");
  EXPECT_EQ(shown(19, 2),  // half a character
            "tokens 17 to 21 around [>token 19<], of document 2, which starts at token 16:\n"
            "tw[>\\xc3<]\\xb6\n");
  EXPECT_EQ(shown(22, 1),
            "tokens 21 to 23 around [>token 22<], of document 2, which starts at token 16:\n"
            "l[>f<]\n");
  EXPECT_EQ(shown(22, 0),
            "tokens 22 to 22 around [>token 22<], of document 2, which starts at token 16:\n\n");
  for (const std::int64_t at : {-1, 23, 24})
    EXPECT_EQ(message_of<UsageError>([&] { inspect(dataset, &bytes_, at, 1); }),
              str("--at ", at, ": expected a token of the dataset, which are numbered 0 to 22"));
}

TEST_F(InspectTest, and_where_one_stands_behind_each_also_far_from_the_begin) {
  spit(directory_ / "train.bin", body({5, 6, 50256, 7, 8, 9, 50256, 50256, 1, 2}, 2));
  const Dataset dataset({(directory_ / "train.bin").string()});
  const auto around = [&](std::int64_t at, std::int64_t most_scanned) {
    const auto text = inspect(dataset, nullptr, at, 3, most_scanned);
    return text.substr(text.find(" around") + 7);
  };
  const std::vector<std::string> shown{
      " [>token 0<], of document 0, which starts at token 0:\n[>5<] 6 [50256]\n\n",
      " [>token 1<], of document 0, which starts at token 0:\n5 [>6<] [50256]\n7 \n",
      " [>token 2<], of document 0, which starts at token 0:\n5 6 [>[50256]<]\n7 8 \n",
      " [>token 3<], of document 1, which starts at token 3:\n[>7<] 8 9 \n",
      " [>token 4<], of document 1, which starts at token 3:\n7 [>8<] 9 [50256]\n\n",
      " [>token 5<], of document 1, which starts at token 3:\n7 8 [>9<] [50256]\n[50256]\n\n",
      " [>token 6<], of document 1, which starts at token 3:\n7 8 9 [>[50256]<]\n[50256]\n1 \n",
      " [>token 7<], of document 2, which starts at token 7:\n[>[50256]<]\n1 2 \n",
      " [>token 8<], of document 3, which starts at token 8:\n[>1<] 2 \n",
      " [>token 9<], of document 3, which starts at token 8:\n1 [>2<] \n"};
  for (std::int64_t at = 0; at < dataset.tokens(); ++at) {
    const auto& expected = shown[static_cast<std::size_t>(at)];
    EXPECT_EQ(around(at, 100), expected);
    for (const std::int64_t most : {4, 8}) {
      // The number of a document behind what is counted is not known.
      auto other = expected;
      if (at >= most) other.replace(other.find("document"), 10, "a document");
      EXPECT_EQ(around(at, most), other) << most;
    }
  }
}

TEST_F(InspectTest, a_begin_that_is_far_away_is_looked_for_over_a_million_tokens) {
  constexpr std::int64_t kFar = std::int64_t{1} << 20;
  std::vector<std::int32_t> tokens(kFar + 10, 7);
  tokens[4] = 50256;
  spit(directory_ / "train.bin", body(tokens, 2));
  const Dataset dataset({(directory_ / "train.bin").string()});
  const auto around = [&](std::int64_t at, std::int64_t most_scanned) {
    const auto text = inspect(dataset, nullptr, at, 1, most_scanned);
    return text.substr(text.find(" around"));
  };
  expect_contains(around(kFar + 3, 8), "of a document, which starts at token 5:\n7 [>7<] \n");
  expect_contains(around(kFar + 4, 8),
                  "of a document that starts more than 1,048,575 tokens before:\n7 [>7<] \n");
  expect_contains(around(kFar + 4, 2 * kFar), "of document 1, which starts at token 5:\n");
}

TEST(ShownText, what_steers_a_terminal_is_shown_as_bytes_and_characters_cut_by_tokens_are_whole) {
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

#include "data/inspect.h"

#include <gtest/gtest.h>

#include "data/pack.h"
#include "data/shown_text.h"
#include "tests/data/shards.h"

namespace lockstep::testing {
namespace {

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
  const auto text = inspect(dataset, &bytes_, 0, 100);
  expect_contains(text, "bytes, 16 bits a token, vocabulary 257");
  expect_contains(text, "token 256 in front of each document");
  expect_contains(text, "shards       1\n");
  expect_contains(text, "tokens       30\n");
  expect_contains(text, "fingerprint  " + dataset.fingerprint());
  expect_contains(text, "documents    3\nlengths      4 to 14 tokens, mean 10.0\n");
  expect_contains(text, "from             4             1  ####");
  expect_contains(text, "from             8             2  ####");
  expect_contains(text,
                  "tokens 0 to 30, from document 0 on:\n\n[256]\none\n[256]\nthree three\n[256]\n"
                  "\\x1b[31m\\x7f tw\xc3\xb6lf\n");
  expect_contains(inspect(dataset, &bytes_, 5, 5), "tokens 5 to 10, from document 1 on:\nthree\n");
  EXPECT_EQ(inspect(dataset, &bytes_, 5, 5).find('\x1b'), std::string::npos);
  EXPECT_THROW(inspect(dataset, &bytes_, 30, 1), UsageError);
  EXPECT_THROW(inspect(dataset, &bytes_, -1, 1), UsageError);
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
  const auto listed = inspect(Dataset({(directory_ / "d").string()}), nullptr, 0, 1);
  const auto scanned = inspect(Dataset({(directory_ / "x.bin").string()}), nullptr, 0, 1);
  EXPECT_EQ(lengths(listed), lengths(scanned));
}

TEST_F(InspectTest, tokens_of_others_are_shown_as_ids_and_a_long_dataset_is_scanned_in_part) {
  spit(directory_ / "train.bin", body({5, 6, 50256, 7, 8, 9, 50256, 1}, 2));
  const Dataset dataset({(directory_ / "train.bin").string()});
  const auto text = inspect(dataset, nullptr, 1, 3);
  expect_contains(text, "nanoGPT, 16 bits a token, vocabulary unknown");
  expect_contains(text, "token 50256 behind each document");
  expect_contains(text, "documents    3\nlengths      1 to 4 tokens, mean 2.7\n");
  expect_contains(text, "tokens 1 to 4:\n6 [50256]\n7 \n");
  expect_contains(inspect(dataset, nullptr, 0, 1, 4), "documents    in the first 4 tokens: 1\n");
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
  const auto text = inspect(dataset, &bytes_, 0, 100);
  expect_contains(text, "listed beside the shards");
  expect_contains(text,
                  "tokens 0 to 24, from document 0 on, {+what counts in the loss+}:\n"
                  "[256]ask{+say[256]+}\n[document]\n[256]q{+long response[256]+}\n");
  expect_contains(inspect(dataset, &bytes_, 5, 2), "on, {+what counts in the loss+}:\n{+ay+}\n");
  expect_contains(inspect(dataset, &bytes_, 9, 4), "from document 1 on");
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

}  // namespace
}  // namespace lockstep::testing

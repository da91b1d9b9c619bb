#include "data/inspect.h"

#include <gtest/gtest.h>

#include "data/pack.h"
#include "tests/data/shards.h"

namespace lockstep::testing {
namespace {

class InspectTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(InspectTest, a_packed_text_is_described_and_shown) {
  spit(directory_ / "text", "one\n\nthree three\n\n\x1b[31m\x7f tw\xc3\xb6lf");
  PackOptions options;
  options.inputs = {directory_ / "text"};
  options.out = directory_ / "d";
  options.document_separator = "\n\n";
  pack(options);
  const Dataset dataset({options.out.string()});
  const auto text = inspect(dataset, 0, 100);
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
  expect_contains(inspect(dataset, 5, 5), "tokens 5 to 10:\nthree\n");
  EXPECT_EQ(inspect(dataset, 5, 5).find('\x1b'), std::string::npos);
  EXPECT_THROW(inspect(dataset, 30, 1), UsageError);
  EXPECT_THROW(inspect(dataset, -1, 1), UsageError);
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
  const auto listed = inspect(Dataset({(directory_ / "d").string()}), 0, 1);
  const auto scanned = inspect(Dataset({(directory_ / "x.bin").string()}), 0, 1);
  EXPECT_EQ(lengths(listed), lengths(scanned));
}

TEST_F(InspectTest, tokens_of_others_are_shown_as_ids_and_a_long_dataset_is_scanned_in_part) {
  spit(directory_ / "train.bin", body({5, 6, 50256, 7, 8, 9, 50256, 1}, 2));
  const Dataset dataset({(directory_ / "train.bin").string()});
  const auto text = inspect(dataset, 1, 3);
  expect_contains(text, "nanoGPT, 16 bits a token, vocabulary unknown");
  expect_contains(text, "token 50256 behind each document");
  expect_contains(text, "documents    3\nlengths      1 to 4 tokens, mean 2.7\n");
  expect_contains(text, "tokens 1 to 4:\n6 [50256]\n7 \n");
  expect_contains(inspect(dataset, 0, 1, 4), "documents    in the first 4 tokens: 1\n");
}

}  // namespace
}  // namespace lockstep::testing

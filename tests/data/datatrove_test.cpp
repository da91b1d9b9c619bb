#include "data/datatrove.h"

#include <gtest/gtest.h>

#include "data/dataset.h"
#include "tests/data/shards.h"

namespace lockstep::testing::datatrove_test {

class DatatroveTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (directory_ / name).string(); }
  std::string refusal() const {
    return message_of<DataError>([&] { Dataset({at("x.ds")}); });
  }
  TemporaryDirectory directory_;
};

TEST_F(DatatroveTest, the_last_end_says_how_wide_a_token_is) {
  for (const int bytes : {2, 4}) {
    const auto documents = random_texts(30, bytes == 2 ? 65'536 : 1 << 30);
    write_datatrove(directory_ / "x", documents, bytes);
    const Dataset dataset({at("x.ds")});
    EXPECT_EQ(dataset.format().token_bytes, bytes);
    EXPECT_EQ(dataset.format().boundary, Boundary::listed);
    Tokens read(static_cast<std::size_t>(dataset.tokens()));
    dataset.read(read, 0);
    EXPECT_EQ(read, joined(documents));
  }
  spit(directory_ / "x.ds", std::string(30, 'x'));
  spit(directory_ / "x.ds.index", u64s({3, 10}));
  expect_contains(refusal(),
                  "x.ds.index: at byte 8: the last document ends at token 10, but the "
                  ".ds has 30 bytes");
  spit(directory_ / "x.ds.index", "1234567");
  expect_contains(refusal(), "x.ds.index: at byte 7");
  spit(directory_ / "x.ds.index", "");
  expect_contains(refusal(), "x.ds.index: at byte 0");
  std::filesystem::remove(directory_ / "x.ds.index");
  expect_contains(refusal(), "x.ds.index: cannot open");
}

TEST_F(DatatroveTest, documents_without_tokens_are_left_out) {
  spit(directory_ / "x.ds", body({1, 2, 3, 4, 5}, 2));
  spit(directory_ / "x.ds.index", u64s({0, 2, 2, 5, 5}));
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  Dataset({at("x.ds")}).for_each_document([&](std::int64_t first, std::int64_t end) {
    found.emplace_back(first, end);
  });
  EXPECT_EQ(found, (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 2}, {2, 5}}));
  spit(directory_ / "x.ds.index", u64s({3, 2, 5}));
  const Dataset falling({at("x.ds")});
  expect_contains(
      message_of<DataError>([&] { falling.for_each_document([](std::int64_t, std::int64_t) {}); }),
      "x.ds.index: at byte 8: a document ends at token 2, the one before at 3");
}

TEST_F(DatatroveTest, metadata_must_say_what_there_is) {
  write_datatrove(directory_ / "x", {{1, 2, 3}, {4, 5}});
  const auto with = [&](const std::string& text) { spit(directory_ / "x.ds.metadata", text); };
  for (const std::string text :
       {"gpt2|2\n5\n5.00 T", "Unknown Tokenizer|2|2\n5\n5.00 T", "gpt2\n5\n5.00 T", "a|b|2\n5"}) {
    with(text);
    EXPECT_EQ(Dataset({at("x.ds")}).tokens(), 5) << text;
  }
  with("gpt2|4\n5\n");
  expect_contains(refusal(), "x.ds.metadata: at byte 5: expected 2 bytes a token");
  with("gpt2|2\n6\n");
  expect_contains(refusal(), "x.ds.metadata: at byte 7: expected 5 tokens, as there are, found 6");
  with("gpt2|2");
  expect_contains(refusal(), "x.ds.metadata: at byte 0");
}

TEST_F(DatatroveTest, losses_are_masks) {
  const auto documents = random_texts(30, 100);
  write_datatrove(directory_ / "x", documents);
  const auto mask = random_mask(joined(documents).size());
  spit(directory_ / "x.ds.loss", std::string(mask.begin(), mask.end()));
  const Dataset dataset({at("x.ds")});
  EXPECT_TRUE(dataset.has_masks());
  std::vector<std::uint8_t> read(mask.size());
  dataset.read_mask(read, 0);
  EXPECT_EQ(read, mask);
  auto wrong = std::string(mask.begin(), mask.end());
  wrong[17] = 2;
  spit(directory_ / "x.ds.loss", wrong);
  expect_contains(message_of<DataError>([&] { Dataset({at("x.ds")}).read_mask(read, 0); }),
                  "x.ds.loss: at byte 17: a loss mask of 0 and 1 holds 2");
  spit(directory_ / "x.ds.loss", wrong + "x");
  expect_contains(refusal(), "x.ds.loss: at byte ");
}

// As the package `humanize` writes it: tests/oracle compares with datatrove itself.
TEST_F(DatatroveTest, metadata_name_the_tokens_for_people) {
  EXPECT_EQ(datatrove_metadata("gpt2", 2, 5), "gpt2|2\n5\n5.00 T");
  EXPECT_EQ(datatrove_metadata("gpt2", 2, 999), "gpt2|2\n999\n999 T");
  EXPECT_EQ(datatrove_metadata("gpt2", 4, 1500), "gpt2|4\n1500\n1.50 kT");
  EXPECT_EQ(datatrove_metadata("gpt2", 4, 123456), "gpt2|4\n123456\n123 kT");
  EXPECT_EQ(datatrove_metadata("gpt2", 4, 999999), "gpt2|4\n999999\n1.00 MT");
  EXPECT_EQ(datatrove_metadata("gpt2", 4, 9035582198), "gpt2|4\n9035582198\n9.04 GT");
}

}  // namespace lockstep::testing::datatrove_test

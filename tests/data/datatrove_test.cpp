#include "data/datatrove.h"

#include <gtest/gtest.h>

#include "data/dataset.h"
#include "tests/data/shards.h"

namespace lockstep::testing::datatrove_test {

class DatatroveTest : public DirectoryTest {
 protected:
  void expect_refused(const std::string& name, std::initializer_list<std::string> pins) const {
    expect_refusal<DataError>("data/datatrove", name, pins, [&] {
      const Dataset dataset({at("x.ds")});
      documents_of(dataset);
      whole_mask(dataset);
    });
  }
};

TEST_F(DatatroveTest, the_last_end_determines_the_token_width) {
  for (const int bytes : {2, 4}) {
    const auto documents = random_texts(30, bytes == 2 ? 65'536 : 1 << 30);
    write_datatrove(directory_ / "x", documents, bytes);
    const Dataset dataset({at("x.ds")});
    EXPECT_EQ(dataset.format().token_bytes, bytes);
    EXPECT_EQ(dataset.format().boundary, Boundary::listed);
    EXPECT_EQ(documents_of(dataset), documents);
  }
  write("x.ds", std::string(30, 'x'));
  const struct {
    const char* name;
    std::string index, pin;
  } cases[] = {{"no width", u64s({3, 10}), "at byte 8: "},
               {"half an end", "1234567", "at byte 7: "},
               {"no ends", "", "at byte 0: "}};
  for (const auto& [name, index, pin] : cases) {
    write("x.ds.index", index);
    expect_refused(name, {"x.ds.index: ", pin});
  }
  std::filesystem::remove(directory_ / "x.ds.index");
  expect_refused("no index", {"x.ds.index: "});
}

TEST_F(DatatroveTest, documents_without_tokens_are_skipped) {
  write("x.ds", body({1, 2, 3, 4, 5}, 2));
  write("x.ds.index", u64s({0, 2, 2, 5, 5}));
  EXPECT_EQ(documents_of(Dataset({at("x.ds")})), (Documents{{1, 2}, {3, 4, 5}}));
  write("x.ds.index", u64s({3, 2, 5}));
  expect_refused("ends that fall", {"x.ds.index: at byte 8: ", " 2", " 3"});
}

TEST_F(DatatroveTest, metadata_must_match_the_shard) {
  write_datatrove(directory_ / "x", {{1, 2, 3}, {4, 5}});
  for (const std::string text :
       {"gpt2|2\n5\n5.00 T", "Unknown Tokenizer|2|2\n5\n5.00 T", "gpt2\n5\n5.00 T", "a|b|2\n5"}) {
    write("x.ds.metadata", text);
    EXPECT_EQ(Dataset({at("x.ds")}).tokens(), 5) << text;
  }
  const struct {
    const char *name, *metadata, *pin;
  } cases[] = {{"another width", "gpt2|4\n5\n", "at byte 5: "},
               {"another number of tokens", "gpt2|2\n6\n", "at byte 7: "},
               {"no number of tokens", "gpt2|2", "at byte 0"}};
  for (const auto& [name, metadata, pin] : cases) {
    write("x.ds.metadata", metadata);
    expect_refused(name, {"x.ds.metadata: ", pin});
  }
}

TEST_F(DatatroveTest, losses_are_masks) {
  const auto documents = random_texts(30, 100);
  write_datatrove(directory_ / "x", documents);
  const auto mask = random_mask(joined(documents).size());
  std::string losses(mask.begin(), mask.end());
  write("x.ds.loss", losses);
  const Dataset dataset({at("x.ds")});
  EXPECT_TRUE(dataset.has_masks());
  EXPECT_EQ(whole_mask(dataset), mask);
  losses[17] = 2;
  write("x.ds.loss", losses);
  expect_refused("loss of 2", {"x.ds.loss: at byte 17: ", " 2"});
  write("x.ds.loss", losses + "x");
  expect_refused("losses of more tokens", {"x.ds.loss: at byte "});
}

// As the package `humanize` writes it: tests/oracle compares with datatrove itself.
TEST_F(DatatroveTest, metadata_contain_the_number_of_tokens_for_people) {
  EXPECT_EQ(datatrove_metadata("gpt2", 2, 5), "gpt2|2\n5\n5.00 T");
  EXPECT_EQ(datatrove_metadata("gpt2", 2, 999), "gpt2|2\n999\n999 T");
  EXPECT_EQ(datatrove_metadata("gpt2", 4, 1500), "gpt2|4\n1500\n1.50 kT");
  EXPECT_EQ(datatrove_metadata("gpt2", 4, 123456), "gpt2|4\n123456\n123 kT");
  EXPECT_EQ(datatrove_metadata("gpt2", 4, 999999), "gpt2|4\n999999\n1.00 MT");
  EXPECT_EQ(datatrove_metadata("gpt2", 4, 9035582198), "gpt2|4\n9035582198\n9.04 GT");
}

}  // namespace lockstep::testing::datatrove_test

#include "data/megatron.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "data/shard_list.h"
#include "tests/data/shards.h"

namespace lockstep::testing::megatron_test {

class MegatronTest : public ::testing::Test {
 protected:
  // Of sequences of 3, 0, 5 and 2 tokens in documents of two, none, and two.
  static std::string example() { return megatron_index(8, 2, {3, 0, 5, 2}, {0, 2, 2, 4}); }
  static constexpr int kLengths = 34, kOffsets = 34 + 16, kDocuments = 34 + 16 + 32;

  static std::string edited(std::size_t at, std::int64_t value, int size) {
    auto bytes = example();
    std::string text;
    append(text, static_cast<std::uint64_t>(value), size);
    std::copy(text.begin(), text.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    return bytes;
  }
  // Of what is opened, and looked at thoroughly.
  std::string refusal(const std::string& bytes) const {
    spit(directory_ / "x.idx", bytes);
    return message_of<DataError>([&] { MegatronIndex(ReadFile(directory_ / "x.idx")).check(); });
  }
  static std::vector<std::int64_t> ends_of(const DocumentEnds& ends) {
    std::vector<std::int64_t> all;
    ends.for_each([&](std::int64_t end) { all.push_back(end); });
    return all;
  }
  TemporaryDirectory directory_;
};

TEST_F(MegatronTest, documents_end_where_their_last_sequence_does) {
  spit(directory_ / "x.idx", example());
  const MegatronIndex index(ReadFile(directory_ / "x.idx"));
  index.check();
  EXPECT_EQ(index.tokens(), 10);
  EXPECT_EQ(index.format().token_bytes, 2);
  EXPECT_EQ(index.count(), 3);
  EXPECT_EQ(index.end(0), 3);
  EXPECT_EQ(index.end(1), 3);  // a document without sequences
  EXPECT_EQ(index.end(2), 10);
  EXPECT_EQ(ends_of(index), (std::vector<std::int64_t>{3, 10}));
  EXPECT_EQ(index.first_after(0), 0);
  EXPECT_EQ(index.first_after(3), 2);
  EXPECT_EQ(index.first_after(10), 3);
}

TEST_F(MegatronTest, more_documents_than_are_read_at_once) {
  const auto documents = random_texts(150'000, 100);
  write_megatron(directory_ / "x", documents);
  const MegatronIndex index(ReadFile(directory_ / "x.idx"));
  index.check();
  std::vector<std::int64_t> expected;
  std::int64_t end = 0;
  for (const auto& document : documents)
    expected.push_back(end += std::ssize(document));
  EXPECT_EQ(ends_of(index), expected);
  EXPECT_EQ(index.end(149'998), expected[149'998]);
}

TEST_F(MegatronTest, every_type_of_integers_is_read_and_floats_are_refused_by_name) {
  const std::vector<std::pair<int, int>> integers = {{1, 1}, {2, 1}, {3, 2},
                                                     {4, 4}, {5, 8}, {8, 2}};
  for (const auto& [code, bytes] : integers) {
    const auto documents = random_texts(10, 100, static_cast<std::uint64_t>(code));
    write_megatron(directory_ / "x", documents, code, bytes);
    LocalFiles files;
    const auto list = list_shards(directory_ / "x", files);
    const auto shard = open_shard(list, list.shards[0], files);
    Tokens read(static_cast<std::size_t>(shard.file.tokens()));
    shard.file.read(read, 0, 100);
    EXPECT_EQ(read, joined(documents)) << code;
  }
  expect_contains(refusal(edited(17, 6, 1)), "at byte 17: tokens of type f64");
  expect_contains(refusal(edited(17, 7, 1)), "at byte 17: tokens of type f32");
  expect_contains(refusal(edited(17, 0, 1)), "at byte 17: tokens of type 0");
  expect_contains(refusal(edited(17, 9, 1)), "at byte 17: tokens of type 9");
}

TEST_F(MegatronTest, sequences_out_of_order_that_overlap_or_leave_gaps_are_refused_by_number) {
  expect_contains(refusal(edited(kOffsets + 16, 8, 8)),
                  str("at byte ", kOffsets + 16,
                      ": sequence 2 begins at byte 8 of the .bin, "
                      "expected 6"));
  expect_contains(refusal(edited(kOffsets + 16, 4, 8)), "sequence 2 begins at byte 4");
  expect_contains(refusal(edited(kOffsets, 2, 8)), "sequence 0 begins at byte 2");
  expect_contains(refusal(edited(kLengths, -3, 4)),
                  str("at byte ", kLengths, ": sequence 0 has -3 tokens"));
  expect_contains(refusal(edited(kLengths, 2'000'000, 4)), "sequence 0 of 2000000 tokens ends");
  expect_contains(refusal(edited(kLengths + 12, -1, 4)), "sequence 3 has -1 tokens");
  expect_contains(refusal(edited(kOffsets + 24, 17, 8)), "sequence 3 begins at byte 17");
  expect_contains(refusal(edited(kOffsets + 24, -2, 8)), "sequence 3 begins at byte -2");
  expect_contains(refusal(edited(kOffsets + 24, std::int64_t{1} << 62, 8)), "sequence 3 begins");
}

TEST_F(MegatronTest, documents_that_fall_or_lie_outside_are_refused_by_number) {
  expect_contains(refusal(edited(kDocuments, 1, 8)), "the first document begins at sequence 1");
  expect_contains(refusal(edited(kDocuments + 24, 3, 8)), "the last document ends at sequence 3");
  expect_contains(refusal(edited(kDocuments + 16, 1, 8)),
                  str("at byte ", kDocuments + 16, ": document 1 ends at sequence 1"));
  expect_contains(refusal(edited(kDocuments + 8, 5, 8)), "document 0 ends at sequence 5 of 4");
  expect_contains(refusal(edited(kDocuments + 8, -1, 8)), "document 0 ends at sequence -1");
}

TEST_F(MegatronTest, a_damaged_header_is_refused_by_its_field) {
  expect_contains(refusal("MMIDIDY" + example().substr(7)), "at byte 0: no Megatron index");
  expect_contains(refusal(edited(9, 2, 8)), "at byte 9: version 2");
  expect_contains(refusal(edited(18, 0, 8)), "at byte 18: the index is of no sequences");
  expect_contains(refusal(edited(18, std::int64_t{1} << 62, 8)), "at byte 18: 46116860184273");
  expect_contains(refusal(edited(18, -1, 8)), "at byte 18: 18446744073709551615 sequences");
  expect_contains(refusal(edited(26, 1, 8)), "at byte 26: 1 indices of documents");
  expect_contains(refusal(edited(26, -1, 8)), "at byte 26: 18446744073709551615 indices");
  expect_contains(refusal(example() + std::string(4, '\0')), "multimodal");
  expect_contains(refusal(example() + "x"), "too long");
  for (std::size_t length = 0; length < example().size(); ++length)
    expect_contains(refusal(example().substr(0, length)), "x.idx: at byte ");
}

TEST_F(MegatronTest, an_index_of_another_file_is_refused) {
  write_megatron(directory_ / "x", {{1, 2, 3}, {4, 5}});
  spit(directory_ / "x.bin", body({1, 2, 3, 4}, 2));
  LocalFiles files;
  expect_contains(message_of<DataError>([&] { list_shards(directory_ / "x.bin", files); }),
                  "the last sequence ends at token 5, but x.bin holds 4");
}

}  // namespace lockstep::testing::megatron_test

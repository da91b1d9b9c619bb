#include "data/megatron.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "data/shard_list.h"
#include "tests/data/shards.h"

namespace lockstep::testing::megatron_test {

class MegatronTest : public DirectoryTest {
 protected:
  // Of sequences of 3, 0, 5 and 2 tokens in documents of two, none, and two.
  static std::string example() { return megatron_index(8, 2, {3, 0, 5, 2}, {0, 2, 2, 4}); }
  static constexpr auto kHuge = std::int64_t{1} << 62;
  static constexpr std::size_t kLengths = 34, kOffsets = 34 + 16, kDocuments = 34 + 16 + 32;

  // Opened, and looked at thoroughly.
  void check(const std::string& bytes) const {
    write("x.idx", bytes);
    MegatronIndex(ReadFile(directory_ / "x.idx")).check();
  }
  static std::string edited(std::size_t at, std::int64_t value, int size) {
    std::string text;
    append(text, static_cast<std::uint64_t>(value), size);
    return example().replace(at, text.size(), text);
  }
  void expect_refused(const std::string& name, const std::string& bytes,
                      std::initializer_list<std::string> pins) const {
    SCOPED_TRACE(name);
    expect_contains(message_of<DataError>([&] { check(bytes); }), "x.idx: at byte ");
    expect_refusal<DataError>("data/megatron", name, pins, [&] { check(bytes); });
  }
  static std::vector<std::int64_t> ends_of(const DocumentEnds& ends) {
    std::vector<std::int64_t> all;
    ends.for_each([&](std::int64_t end) { all.push_back(end); });
    return all;
  }
};

TEST_F(MegatronTest, documents_end_with_their_last_sequence) {
  write("x.idx", example());
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

TEST_F(MegatronTest, every_integer_type_is_read_and_floats_are_an_error) {
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
  expect_refused("type f64", edited(17, 6, 1), {"at byte 17: ", "f64"});
  expect_refused("type f32", edited(17, 7, 1), {"at byte 17: ", "f32"});
  expect_refused("type 0", edited(17, 0, 1), {"at byte 17: ", " 0"});
  expect_refused("type 9", edited(17, 9, 1), {"at byte 17: ", " 9"});
}

TEST_F(MegatronTest, sequences_out_of_order_that_overlap_or_leave_gaps_are_refused_by_number) {
  const auto third = str("at byte ", kOffsets + 16), first = str("at byte ", kLengths);
  expect_refused("gap", edited(kOffsets + 16, 8, 8), {third, "sequence 2 ", " 8 ", " 6"});
  expect_refused("overlap", edited(kOffsets + 16, 4, 8), {"sequence 2 ", " 4 "});
  expect_refused("gap at the begin", edited(kOffsets, 2, 8), {"sequence 0 ", " 2 "});
  expect_refused("gap at the end", edited(kOffsets + 24, 17, 8), {"sequence 3 ", " 17 "});
  expect_refused("negative offset", edited(kOffsets + 24, -2, 8), {"sequence 3 ", " -2 "});
  expect_refused("huge offset", edited(kOffsets + 24, kHuge, 8), {"sequence 3 "});
  expect_refused("negative length", edited(kLengths, -3, 4), {first, "sequence 0 ", " -3 "});
  expect_refused("huge length", edited(kLengths, 2'000'000, 4), {"sequence 0 ", " 2000000 "});
  expect_refused("negative last", edited(kLengths + 12, -1, 4), {"sequence 3 ", " -1 "});
}

TEST_F(MegatronTest, documents_that_decrease_or_are_out_of_range_are_an_error) {
  const auto second = str("at byte ", kDocuments + 16);
  expect_refused("first document", edited(kDocuments, 1, 8), {"sequence 1"});
  expect_refused("last document", edited(kDocuments + 24, 3, 8), {"sequence 3"});
  expect_refused("documents that fall", edited(kDocuments + 16, 1, 8),
                 {second, "document 1 ", "sequence 1"});
  expect_refused("document outside", edited(kDocuments + 8, 5, 8), {"document 0 ", "sequence 5,"});
  expect_refused("negative document", edited(kDocuments + 8, -1, 8),
                 {"document 0 ", "sequence -1"});
}

TEST_F(MegatronTest, a_damaged_header_is_refused_by_its_field) {
  expect_refused("magic", edited(6, 'Y', 1), {"at byte 0: "});
  expect_refused("version", edited(9, 2, 8), {"at byte 9: ", " 2"});
  expect_refused("no sequences", edited(18, 0, 8), {"at byte 18: "});
  expect_refused("many sequences", edited(18, kHuge, 8), {"at byte 18: 46116860184273"});
  expect_refused("negative sequences", edited(18, -1, 8), {"at byte 18: 18446744073709551615 "});
  expect_refused("one document index", edited(26, 1, 8), {"at byte 26: 1 "});
  expect_refused("negative indices", edited(26, -1, 8), {"at byte 26: 18446744073709551615 "});
  expect_refused("multimodal", example() + std::string(4, '\0'), {});
  expect_refused("too long", example() + "x", {});
  for (std::size_t length = 0; length < example().size(); ++length)
    expect_contains(message_of<DataError>([&] { check(example().substr(0, length)); }),
                    "x.idx: at byte ");
}

TEST_F(MegatronTest, an_index_of_another_file_is_an_error) {
  write_megatron(directory_ / "x", {{1, 2, 3}, {4, 5}});
  write("x.bin", body({1, 2, 3, 4}, 2));
  LocalFiles files;
  expect_refusal<DataError>("data/megatron", "index of another file", {" 5", "x.bin", " 4"},
                            [&] { list_shards(directory_ / "x.bin", files); });
}

}  // namespace lockstep::testing::megatron_test

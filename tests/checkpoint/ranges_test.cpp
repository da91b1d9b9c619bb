// Reading in pieces: the next piece is read while one is used.
#include "checkpoint/ranges.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "core/hash.h"
#include "tests/wording.h"

namespace lockstep::testing::ranges_test {

constexpr std::int64_t kBytes = (std::int64_t{19} << 20) + 5;  // several pieces, and a rest

class PieceReaderTest : public ::testing::Test {
 protected:
  PieceReaderTest() {
    for (auto* text : {&a_, &b_}) {
      std::mt19937_64 random(text == &a_ ? 1 : 2);
      text->resize(kBytes);
      for (std::size_t i = 0; i + 8 <= text->size(); i += 8) {
        const auto word = random();
        std::memcpy(text->data() + i, &word, 8);
      }
    }
    spit(directory_ / "a", a_);
    spit(directory_ / "b", b_);
  }
  static std::string read(PieceReader& reader, const ReadFile& file, std::int64_t offset,
                          std::int64_t bytes) {
    std::string got;
    reader.read(file, offset, bytes, [&](auto piece, std::int64_t done) {
      EXPECT_EQ(done, std::ssize(got));
      EXPECT_EQ(done % 8, 0);
      got.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    });
    return got;
  }

  TemporaryDirectory directory_;
  std::string a_, b_;
};

TEST_F(PieceReaderTest, reads_ranges_with_any_begin_and_end) {
  const ReadFile a(directory_ / "a"), b(directory_ / "b");
  PieceReader reader;
  EXPECT_TRUE(read(reader, a, 0, kBytes) == a_);
  EXPECT_TRUE(read(reader, b, 3, kBytes - 3) == b_.substr(3));
  std::mt19937_64 random(3);
  std::int64_t at = 0;
  for (int i = 0; i < 300; ++i) {
    const bool of_a = i % 50 < 30;
    // Usually right after the last range, as slices are stored.
    if (i % 7 == 6) at = static_cast<std::int64_t>(random() % kBytes);
    const auto most = std::min<std::int64_t>(kBytes - at, i % 5 == 0 ? 9 << 20 : 70'001);
    const auto bytes = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
    const auto& text = of_a ? a_ : b_;
    ASSERT_TRUE(read(reader, of_a ? a : b, at, bytes) ==
                text.substr(static_cast<std::size_t>(at), static_cast<std::size_t>(bytes)))
        << i << ": " << bytes << " bytes at " << at;
    at = (at + bytes) % kBytes;
  }
}

TEST_F(PieceReaderTest, continues_after_a_use_that_throws) {
  const ReadFile a(directory_ / "a");
  PieceReader reader;
  EXPECT_THROW(reader.read(a, 0, kBytes,
                           [](auto, std::int64_t done) {
                             if (done > 0) throw DataError("enough");
                           }),
               DataError);
  EXPECT_TRUE(read(reader, a, 0, kBytes) == a_);
}

// An error of an unused read-ahead is ignored. A needed piece is read again and throws the error.
TEST_F(PieceReaderTest, reports_a_read_error_to_the_caller) {
  const ReadFile a(directory_ / "a");
  PieceReader reader;
  EXPECT_TRUE(read(reader, a, 0, 100) == a_.substr(0, 100));
  std::filesystem::resize_file(directory_ / "a", 6 << 20);
  EXPECT_TRUE(read(reader, a, 100, 1000) == a_.substr(100, 1000));  // the reader continues
  EXPECT_TRUE(read(reader, a, 1100, 1000) == a_.substr(1100, 1000));
  const auto beyond = [&] { read(reader, a, 2100, kBytes - 2100); };
  expect_refusal<DataError>("checkpoint/ranges", "a file that became shorter", {"a: at byte "},
                            beyond);
}

TEST_F(PieceReaderTest, verifies_a_range_of_several_pieces) {
  const ReadFile a(directory_ / "a");
  PieceReader reader;
  HashedRange range{16, kBytes - 16, "a tensor",
                    hash_hex(std::as_bytes(std::span(a_)).subspan(16))};
  EXPECT_NO_THROW(reader.verify(a, range));
  range.hash.front() = range.hash.front() == '0' ? '1' : '0';
  expect_refusal<DataError>("checkpoint/ranges", "another hash", {"a: at byte 16: a tensor "},
                            [&] { reader.verify(a, range); });
}

}  // namespace lockstep::testing::ranges_test

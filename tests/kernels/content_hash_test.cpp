#include "kernels/content_hash.h"

#include <bit>
#include <gtest/gtest.h>

#include "core/mix.h"
#include "tests/testing.h"

namespace lockstep::testing::content_hash_test {

std::uint64_t value_of(Tensor hash) {
  const auto* halves = hash.as<std::int32_t>();
  return static_cast<std::uint32_t>(halves[0]) |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(halves[1])) << 32;
}

class ContentHash : public ::testing::TestWithParam<DType> {
 protected:
  std::uint64_t hash(ConstTensor x, const HashPlace& place, int threads = 1) {
    Stream stream(Device{}, "test", Stream::Mode::immediate, threads);
    const Tensor out = bench_.integers({0, 0});
    add_content_hash(stream, out, x, place);
    return value_of(out);
  }
  // The contract, element by element.
  static std::uint64_t expected(ConstTensor x, const HashPlace& p) {
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const auto j = p.first_index + i;
      const auto e = p.first + j / p.columns * p.stride + j % p.columns;
      const std::uint64_t bits = x.dtype == DType::bf16
                                     ? x.as<BFloat16>()[i].bits
                                     : std::bit_cast<std::uint32_t>(x.as<float>()[i]);
      sum += mix64((p.purpose + static_cast<std::uint64_t>(e)) * kGolden64 ^ bits);
    }
    return sum;
  }
  static HashPlace whole(std::int64_t n) {
    return {.purpose = 7, .first_index = 0, .first = 0, .columns = n, .stride = n};
  }

  Bench bench_;
};
INSTANTIATE_TEST_SUITE_P(types, ContentHash, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(ContentHash, is_the_sum_of_the_contract_whatever_the_threads) {
  for (const std::int64_t n : {0, 1, 17, 64, 65, 40000, 100003}) {
    const auto x = bench_.random({n}, GetParam());
    for (const HashPlace& place : {whole(std::max<std::int64_t>(n, 1)), HashPlace{3, 5, 11, 7, 100},
                                   HashPlace{9, 64, 0, 64, 128}})
      for (const int threads : {1, 3})
        EXPECT_EQ(hash(x, place, threads), expected(x, place)) << n;
  }
}

TEST_P(ContentHash, of_pieces_adds_up_to_that_of_the_whole) {
  constexpr std::int64_t kRows = 12, kColumns = 40, kHalf = kColumns / 2, kAll = kRows * kColumns;
  const auto x = bench_.random({kRows, kColumns}, GetParam());
  const auto all = hash(x, whole(kAll));
  // Flat pieces, of any size.
  std::uint64_t sum = 0;
  const auto flat = x.view({kAll});
  for (std::int64_t begin = 0, n = 1; begin < kAll; begin += n, n = std::min(n + 7, kAll - begin)) {
    auto place = whole(kAll);
    place.first_index = begin;
    sum += hash(flat.rows(begin, n), place);
  }
  EXPECT_EQ(sum, all);
  // Halves of the columns, one of them in two pieces.
  sum = 0;
  for (std::int64_t part = 0; part < 2; ++part) {
    const auto half = bench_.poisoned({kRows * kHalf}, GetParam());
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t c = 0; c < kHalf; ++c)
        Bench::set(half, r * kHalf + c, get(x, r * kColumns + part * kHalf + c));
    for (const auto& [begin, n] :
         {std::pair<std::int64_t, std::int64_t>{0, 33}, {33, kRows * kHalf - 33}})
      sum += hash(half.rows(begin, n), {7, begin, part * kHalf, kHalf, kColumns});
  }
  EXPECT_EQ(sum, all);
}

TEST_P(ContentHash, any_bit_that_flips_shows_and_so_do_elements_that_change_places) {
  constexpr std::int64_t kSize = 37;
  const auto x = bench_.random({kSize}, GetParam());
  const auto before = hash(x, whole(kSize));
  for (std::int64_t bit = 0; bit < 8 * x.bytes(); ++bit) {
    const auto flip = [&] { x.data[bit / 8] ^= std::byte{1} << (bit % 8); };
    flip();
    EXPECT_NE(hash(x, whole(kSize)), before) << bit;
    flip();
  }
  const double first = get(x, 0), second = get(x, 1);
  ASSERT_NE(first, second);
  Bench::set(x, 0, second);
  Bench::set(x, 1, first);
  EXPECT_NE(hash(x, whole(kSize)), before);
  Bench::set(x, 0, first);
  Bench::set(x, 1, second);
  EXPECT_EQ(hash(x, whole(kSize)), before);
  auto other = whole(kSize);
  ++other.purpose;
  EXPECT_NE(hash(x, other), before);
}

TEST_P(ContentHash, adds_to_what_is_there_and_carries) {
  const auto x = bench_.random({100}, GetParam());
  const auto alone = hash(x, whole(100));
  const Tensor out = bench_.integers({-1, -1});
  add_content_hash(bench_.stream, out, x, whole(100));
  EXPECT_EQ(value_of(out), alone - 1);
}

TEST(ContentHashes, refuse_what_they_do_not_cover) {
  Bench b;
  const Tensor out = b.integers({0, 0}), three = b.integers({0, 0, 0});
  EXPECT_THROW(add_content_hash(b.stream, out, three, {}), Error);
  EXPECT_THROW(add_content_hash(b.stream, three, b.random({3}, DType::fp32), {}), Error);
  EXPECT_THROW(add_content_hash(b.stream, out, b.random({3}, DType::fp32), {.columns = 0}), Error);
}

}  // namespace lockstep::testing::content_hash_test

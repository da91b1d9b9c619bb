#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/testing.h"

namespace lockstep::testing {
namespace {

struct Size {
  std::int64_t N, D, V, P;
};
constexpr Size kSizes[] = {{1, 1, 1, 1}, {7, 33, 5, 3}, {300, 20, 11, 64}, {65, 768, 100, 16}};

// Ids drawn with repetitions; the first half of them all the same.
Tensor ids(Bench& b, std::int64_t N, std::int64_t rows) {
  std::vector<std::int32_t> values;
  for (std::int64_t n = 0; n < N; ++n)
    values.push_back(
        n < N / 2 ? 0
                  : static_cast<std::int32_t>(philox(b.seed, 1, static_cast<std::uint64_t>(n))[0] %
                                              static_cast<std::uint64_t>(rows)));
  return b.integers(values);
}

// table[ids[n]][d] in float64.
double at(const Doubles& table, ConstTensor rows, std::int64_t n, std::int64_t D, std::int64_t d) {
  return table[static_cast<std::size_t>(rows.as<std::int32_t>()[n] * D + d)];
}

class Embedding : public ::testing::TestWithParam<DType> {};

void check_forward(Bench& b, const Size& size, DType dtype, bool learned) {
  const auto [N, D, V, P] = size;
  const auto weight = b.random({V, D}, dtype);
  const auto position_weight = learned ? b.random({P, D}, dtype) : Tensor{};
  const auto tokens = ids(b, N, V), positions = learned ? ids(b, N, P) : Tensor{};
  const auto y = b.poisoned({N, D}, dtype);
  embedding_forward(b.stream, y, tokens, weight, positions, position_weight);
  const auto w = doubles(weight), p = doubles(position_weight);
  for (std::int64_t i = 0; i < N * D; ++i) {
    auto expected = static_cast<float>(at(w, tokens, i / D, D, i % D));
    if (learned) expected += static_cast<float>(at(p, positions, i / D, D, i % D));
    ASSERT_EQ(get(y, i), dtype == DType::bf16 ? to_float(to_bf16(expected)) : expected);
  }
}

// fp32 sums in the order of n: the result is exact, whatever the threads.
void check_backward(Bench& b, const Size& size, DType dtype) {
  const auto [N, D, V, P] = size;
  const auto dy = b.random({N, D}, dtype);
  const auto tokens = ids(b, N, V), positions = ids(b, N, P);
  const auto before = b.random({V, D}, DType::fp32), p_before = b.random({P, D}, DType::fp32);
  const auto expected = b.copy(before), p_expected = b.copy(p_before);
  for (std::int64_t i = 0; i < N * D; ++i) {
    const auto g = static_cast<float>(get(dy, i));
    expected.as<float>()[tokens.as<std::int32_t>()[i / D] * D + i % D] += g;
    p_expected.as<float>()[positions.as<std::int32_t>()[i / D] * D + i % D] += g;
  }
  for (const int threads : {1, 2, 3}) {
    Stream stream(Device{}, "test", Stream::Mode::immediate, threads);
    const auto dweight = b.copy(before), dposition = b.copy(p_before);
    embedding_backward(stream, b.arena, dweight, dposition, dy, tokens, positions);
    expect_bitwise_equal(dweight, expected, "dweight");
    expect_bitwise_equal(dposition, p_expected, "dposition_weight");
    const auto alone = b.copy(before);
    embedding_backward(stream, b.arena, alone, {}, dy, tokens, {});
    expect_bitwise_equal(alone, expected, "dweight without positions");
  }
}

TEST_P(Embedding, forward_equals_the_reference) {
  for (const auto& size : kSizes)
    for (const bool learned : {false, true}) {
      Bench b;
      check_forward(b, size, GetParam(), learned);
    }
}

TEST_P(Embedding, backward_adds_in_the_order_of_tokens_on_any_number_of_threads) {
  for (const auto& size : kSizes) {
    Bench b;
    check_backward(b, size, GetParam());
  }
}

void check_random(Draw& draw, DType dtype) {
  const Size size{draw.size(500), draw.size(300), draw.size(300), draw.size(100)};
  SCOPED_TRACE(str("N ", size.N, " D ", size.D, " V ", size.V, " P ", size.P));
  auto b = draw.bench();
  check_forward(b, size, dtype, draw.coin());
  check_backward(b, size, dtype);
}
TEST_P(Embedding, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(Embedding, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

TEST(EmbeddingContract, an_id_outside_the_table_is_refused_by_value) {
  Bench b;
  const auto weight = b.random({5, 8}, DType::fp32), y = b.poisoned({2, 8}, DType::fp32);
  for (const std::int32_t wrong : {5, -1}) {
    try {
      embedding_forward(b.stream, y, b.integers({1, wrong}), weight, {}, {});
      FAIL() << "accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(str("id ", wrong, " is outside [0, 5)")),
                std::string::npos)
          << e.what();
    }
    EXPECT_THROW(embedding_backward(b.stream, b.arena, weight, {}, y, b.integers({1, wrong}), {}),
                 Error);
  }
}

INSTANTIATE_TEST_SUITE_P(types, Embedding, kFloatTypes, dtype_name);

}  // namespace
}  // namespace lockstep::testing

#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/testing.h"

namespace lockstep::testing::embedding_test {

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
  embedding_forward(b.stream, {y, tokens, weight, positions, position_weight});
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
    embedding_backward(stream, b.arena, {dweight, dposition, dy, tokens, positions});
    expect_bitwise_equal(dweight, expected, "dweight");
    expect_bitwise_equal(dposition, p_expected, "dposition_weight");
    const auto alone = b.copy(before);
    embedding_backward(stream, b.arena, {.dweight = alone, .dy = dy, .ids = tokens});
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

// [0, n) cut into some parts, of which some may be empty: their borders.
std::vector<std::int64_t> borders(Draw& draw, std::int64_t n) {
  std::vector<std::int64_t> at{0, n};
  for (auto cuts = draw.between(0, 3); cuts > 0; --cuts)
    at.push_back(draw.between(0, n));
  std::sort(at.begin(), at.end());
  return at;
}

// The rows of the table, and the tokens whose positions are added, are divided over ranks, each in
// its own way: what the ranks make adds up to the bits of the whole.
void check_parts(Bench& b, Draw& draw, const Size& size, DType dtype) {
  const auto [N, D, V, P] = size;
  const auto weight = b.random({V, D}, dtype), position_weight = b.random({P, D}, dtype);
  const auto tokens = ids(b, N, V), positions = ids(b, N, P);
  const auto dy = b.random({N, D}, dtype), y = b.poisoned({N, D}, dtype);
  const auto dweight = b.random({V, D}, DType::fp32), dwhole = b.copy(dweight);
  embedding_forward(b.stream, {y, tokens, weight, positions, position_weight});
  embedding_backward(b.stream, b.arena, {.dweight = dwhole, .dy = dy, .ids = tokens});

  const auto rows = borders(draw, V);
  auto places = borders(draw, N);
  places.resize(rows.size(), N);
  places.back() = N;  // of more cuts than ranks the last are none
  Doubles sum(static_cast<std::size_t>(N * D));
  for (std::size_t r = 0; r + 1 < rows.size(); ++r) {
    const auto first = rows[r], count = rows[r + 1] - first;
    const EmbeddingPart part{.first_id = first,
                             .table_rows = V,
                             .position_begin = places[r],
                             .position_end = places[r + 1]};
    const auto own = b.poisoned({N, D}, dtype);
    embedding_forward(b.stream, {.y = own,
                                 .ids = tokens,
                                 .weight = weight.rows(first, count),
                                 .positions = positions,
                                 .position_weight = position_weight,
                                 .part = part});
    for (std::int64_t i = 0; i < N * D; ++i)
      sum[static_cast<std::size_t>(i)] += get(own, i);

    const auto dplace = b.random({P, D}, DType::fp32), expected = b.copy(dplace);
    embedding_backward(b.stream, b.arena,
                       {.dweight = dweight.rows(first, count),
                        .dposition_weight = dplace,
                        .dy = dy,
                        .ids = tokens,
                        .positions = positions,
                        .part = part});
    for (auto i = places[r] * D; i < places[r + 1] * D; ++i)
      expected.as<float>()[positions.as<std::int32_t>()[i / D] * D + i % D] +=
          static_cast<float>(get(dy, i));
    expect_bitwise_equal(dplace, expected, "dposition_weight");
  }
  expect_bitwise_equal(dweight, dwhole, "dweight");
  for (std::int64_t i = 0; i < N * D; ++i) {
    const auto whole = static_cast<float>(sum[static_cast<std::size_t>(i)]);
    ASSERT_EQ(get(y, i), dtype == DType::bf16 ? to_float(to_bf16(whole)) : whole) << i;
  }
}
TEST_P(Embedding, parts_of_ranks_add_up_to_the_whole) {
  few_draws([&](Draw& draw) {
    auto b = draw.bench();
    check_parts(b, draw, {draw.size(200), draw.size(100), draw.size(60), draw.size(50)},
                GetParam());
  });
}

void check_random(Draw& draw, DType dtype) {
  const Size size{draw.size(500), draw.size(300), draw.size(300), draw.size(100)};
  SCOPED_TRACE(str("N ", size.N, " D ", size.D, " V ", size.V, " P ", size.P));
  auto b = draw.bench();
  check_forward(b, size, dtype, draw.coin());
  check_backward(b, size, dtype);
  check_parts(b, draw, size, dtype);
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
      embedding_forward(b.stream, {y, b.integers({1, wrong}), weight});
      FAIL() << "accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(str("id ", wrong, " is outside [0, 5)")),
                std::string::npos)
          << e.what();
    }
    EXPECT_THROW(embedding_backward(b.stream, b.arena,
                                    {.dweight = weight, .dy = y, .ids = b.integers({1, wrong})}),
                 Error);
  }
}

// Of a part the ids of the others are well, but not those of none.
TEST(EmbeddingContract, an_id_outside_the_whole_table_is_refused_by_a_part) {
  Bench b;
  const auto weight = b.random({5, 8}, DType::fp32), y = b.poisoned({2, 8}, DType::fp32);
  const auto message = [&](std::int32_t id, const EmbeddingPart& part) -> std::string {
    try {
      embedding_forward(b.stream,
                        {.y = y, .ids = b.integers({1, id}), .weight = weight, .part = part});
      embedding_backward(b.stream, b.arena,
                         {.dweight = weight, .dy = y, .ids = b.integers({1, id}), .part = part});
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  const auto expect = [&](const std::string& said, const char* part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  EXPECT_EQ(message(19, {.first_id = 5, .table_rows = 20}), "accepted");
  expect(message(20, {.first_id = 5, .table_rows = 20}), "id 20 is outside [0, 20)");
  expect(message(-1, {.first_id = 5, .table_rows = 20}), "id -1 is outside [0, 20)");
  expect(message(0, {.first_id = 16, .table_rows = 20}), "rows 16+5 of a table of 20");
  expect(message(0, {.position_begin = 1, .position_end = 3}), "positions of tokens [1, 3) of 2");
}

INSTANTIATE_TEST_SUITE_P(types, Embedding, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::embedding_test

#include "kernels/embedding.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::embedding_test {

struct EmbeddingCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, EmbeddingCuda, kFloatTypes, dtype_name);

// Ids of [0, rows): all alike, a few, or any.
Twin draw_ids(Twins& t, Draw& draw, std::int64_t N, std::int64_t rows) {
  const std::int64_t bounds[] = {1, std::min<std::int64_t>(rows, 3), rows};
  const auto bound = bounds[draw.between(0, 2)];
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < N; ++n)
    ids.push_back(static_cast<std::int32_t>(rows - 1 - draw.between(0, bound - 1)));
  return t.integers(ids, {N});
}

struct Size {
  std::int64_t N, D, V, P;
};
Size draw_size(Draw& draw, std::int64_t most_tokens, std::int64_t most_rows) {
  const auto N = draw.between(0, 7) == 0 ? 0 : draw.size(most_tokens);
  const auto D = draw.coin() ? draw.size(50) : 8 * draw.between(1, 140);
  return {N, D, draw.size(most_rows), draw.size(300)};
}

TEST_P(EmbeddingCuda, forward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto [N, D, V, P] = draw_size(draw, most(40, 3000), 100);
    const bool learned = draw.coin();
    const auto weight = t.random({V, D}, GetParam()), y = t.poisoned({N, D}, GetParam());
    const auto place = learned ? t.random({P, D}, GetParam()) : Twin{};
    const auto ids = draw_ids(t, draw, N, V), positions = draw_ids(t, draw, N, P);
    t.run([&](const Side& on) {
      embedding_forward(on.stream, {on(y), on(ids), on(weight), on(positions), on(place)});
    });
    t.expect_equal(y, "y");
  });
}

TEST_P(EmbeddingCuda, backward_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto [N, D, V, P] = draw_size(draw, most(300, 5000), 700);
    SCOPED_TRACE(str("N ", N, " D ", D, " V ", V, " P ", P));
    const bool learned = draw.coin();
    const auto dweight = t.random({V, D}, DType::fp32), dy = t.random({N, D}, GetParam());
    const auto dplace = learned ? t.random({P, D}, DType::fp32) : Twin{};
    const auto ids = draw_ids(t, draw, N, V), positions = draw_ids(t, draw, N, P);
    t.run([&](const Side& on) {
      embedding_backward(on.stream, on.scratch,
                         {on(dweight), on(dplace), on(dy), on(ids), on(positions)});
    });
    const double terms = std::sqrt(static_cast<double>(N) + 1);
    t.expect_close(dweight, "dweight", terms);
    if (learned) t.expect_close(dplace, "dposition_weight", terms);
  });
}

// Some rows of the table, none or all, and the positions of some tokens.
TEST_P(EmbeddingCuda, a_part_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto [N, D, V, P] = draw_size(draw, most(300, 5000), 700);
    const EmbeddingPart part{.first_id = draw.between(0, V),
                             .table_rows = V,
                             .position_begin = draw.between(0, N),
                             .position_end = N};
    const auto rows = draw.between(0, V - part.first_id);
    SCOPED_TRACE(str("N ", N, " D ", D, " V ", V, " P ", P, " rows ", part.first_id, "+", rows,
                     " positions from ", part.position_begin));
    const bool learned = draw.coin();
    const auto ids = draw_ids(t, draw, N, V), positions = draw_ids(t, draw, N, P);
    const auto weight = t.random({rows, D}, GetParam()), y = t.poisoned({N, D}, GetParam());
    const auto place = learned ? t.random({P, D}, GetParam()) : Twin{};
    const auto dweight = t.random({rows, D}, DType::fp32), dy = t.random({N, D}, GetParam());
    const auto dplace = learned ? t.random({P, D}, DType::fp32) : Twin{};
    t.run([&](const Side& on) {
      embedding_forward(on.stream, {.y = on(y),
                                    .ids = on(ids),
                                    .weight = on(weight),
                                    .positions = on(positions),
                                    .position_weight = on(place),
                                    .part = part});
      embedding_backward(on.stream, on.scratch,
                         {.dweight = on(dweight),
                          .dposition_weight = on(dplace),
                          .dy = on(dy),
                          .ids = on(ids),
                          .positions = on(positions),
                          .part = part});
    });
    t.expect_equal(y, "y");
    const double terms = std::sqrt(static_cast<double>(N) + 1);
    t.expect_close(dweight, "dweight", terms);
    if (learned) t.expect_close(dplace, "dposition_weight", terms);
  });
}

// Many tiles of keys and digits of two and three bytes; D small, so that the sort is the work.
TEST(EmbeddingSortCuda, many_tokens_of_a_large_vocabulary_find_their_rows) {
  for (const std::int64_t V : {255, 256, 257, 50257, 131072}) {
    Twins t(static_cast<std::uint64_t>(V));
    Draw draw(static_cast<std::uint64_t>(V));
    const std::int64_t N = CudaTest::most(5000, 200000);
    const auto dweight = t.random({V, 1}, DType::fp32), dy = t.random({N, 1}, DType::fp32);
    std::vector<std::int32_t> values;
    for (std::int64_t n = 0; n < N; ++n)  // the first and the last id are half of them
      values.push_back(static_cast<std::int32_t>(n % 4 == 0   ? 0
                                                 : n % 4 == 1 ? V - 1
                                                              : draw.between(0, V - 1)));
    const auto ids = t.integers(values);
    t.run([&](const Side& on) {
      embedding_backward(on.stream, on.scratch,
                         {.dweight = on(dweight), .dy = on(dy), .ids = on(ids)});
    });
    t.expect_close(dweight, str("dweight of ", V), std::sqrt(static_cast<double>(N)));
  }
}

// Few terms of very different size: only the order of n, chunk by chunk, gives these bits.
TEST(EmbeddingSortCuda, a_run_is_summed_in_the_order_of_tokens) {
  Twins t(1);
  constexpr std::int64_t kTokens = 5000;
  const auto dweight = t.random({1000, 8}, DType::fp32), dy = t.random({kTokens, 8}, DType::fp32);
  std::vector<std::int32_t> values;
  for (std::int64_t n = 0; n < kTokens; ++n) {
    values.push_back(static_cast<std::int32_t>(n % 7 * 100));
    for (std::int64_t d = 0; d < 8; ++d)
      Bench::set(dy.host, n * 8 + d, get(dy.host, n * 8 + d) * std::exp2(n * 37 % 20));
  }
  t.upload(dy.device, dy.host);
  const auto ids = t.integers(values);
  Doubles expected = doubles(dweight.host);
  std::vector<std::int64_t> tokens;  // sorted by id, then n
  for (std::int32_t id = 0; id < 7; ++id)
    for (std::int64_t n = id; n < kTokens; n += 7)
      tokens.push_back(n);
  for (std::int64_t d = 0; d < 8; ++d)
    for (std::size_t i = 0; i < tokens.size();) {
      const auto id = values[static_cast<std::size_t>(tokens[i])];
      float sum = 0.0f;  // of the part of the run that lies in this chunk of 32
      do
        sum += static_cast<float>(get(dy.host, tokens[i] * 8 + d));
      while (++i < tokens.size() && i % 32 != 0 &&
             values[static_cast<std::size_t>(tokens[i])] == id);
      auto& total = expected[static_cast<std::size_t>(id * 8 + d)];
      total = static_cast<double>(static_cast<float>(total) + sum);
    }
  t.run([&](const Side& on) {
    embedding_backward(on.stream, on.scratch,
                       {.dweight = on(dweight), .dy = on(dy), .ids = on(ids)});
  });
  EXPECT_EQ(doubles(t.download(dweight.device)), expected);
}

TEST(EmbeddingSortCuda, a_measuring_stream_counts_the_scratch) {
  Twins t(1);
  constexpr Device kGpu{Device::Kind::cuda, 0};
  Arena counted = Arena::measure(kGpu), scratch(kGpu, Arena::Memory::device, 1 << 20);
  Stream measuring(kGpu, "measure", Stream::Mode::measuring);
  const auto table = t.random({300, 8}, DType::fp32), dy = t.random({3000, 8}, DType::bf16);
  const auto ids = t.integers_below(300, {3000});
  for (const std::int64_t rows : {300, 600}) {
    const EmbeddingBackward args{.dweight = table.device,
                                 .dposition_weight = table.device,
                                 .dy = dy.device,
                                 .ids = ids.device,
                                 .positions = ids.device,
                                 .part = {.table_rows = rows}};
    embedding_backward(measuring, counted, args);
    embedding_backward(t.stream(), scratch, args);
    EXPECT_GT(counted.peak_bytes(), 0);
    EXPECT_EQ(counted.peak_bytes(), scratch.peak_bytes());
  }
}

}  // namespace lockstep::testing::embedding_test

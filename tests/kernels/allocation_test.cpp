// Operators allocate nothing: global operator new counts, on every thread, while each runs.
#include <gtest/gtest.h>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/matmul_fp8.h"
#include "kernels/pieces.h"
#include "kernels/qk_norm.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tests/allocations.h"
#include "tests/kernels/fp8.h"
#include "tests/testing.h"

namespace lockstep::testing::allocation_test {

class Allocation : public ::testing::TestWithParam<DType> {
 protected:
  template <class Call>
  void expect_none(const char* what, Call&& call) {
    const auto before = allocations();
    call();
    EXPECT_EQ(allocations() - before, 0) << what;
  }

  Tensor random(const Shape& shape) { return b.random(shape, GetParam()); }
  Tensor floats(const Shape& shape) { return b.random(shape, DType::fp32); }

  static constexpr std::int64_t kRows = 100, kWidth = 200;
  Bench b;
  Tensor x = random({kRows, kWidth}), y = random({kRows, kWidth}), weight = random({kWidth});
  Tensor dweight = floats({kWidth}), dbias = floats({kWidth}), stats = floats({kRows, 2});
  Tensor one = floats({1}), ids = b.integers(std::vector<std::int32_t>(kRows, 3));
};

TEST(AllocationCount, counts) {
  const auto before = allocations();
  int* volatile p = new int(3);  // volatile, or both calls may be left out
  delete p;
  EXPECT_EQ(allocations() - before, 1);
}

TEST_P(Allocation, norms_and_activations_allocate_nothing) {
  const auto rstd = floats({kRows}), gate_up = random({kRows, 2 * kWidth});
  expect_none("rmsnorm_forward", [&] {
    rmsnorm_forward(b.stream, {y, rstd, {}, x, {}, weight, 1e-5f});
  });
  expect_none("rmsnorm_backward", [&] {
    rmsnorm_backward(b.stream, b.arena, {y, dweight, x, x, rstd, weight});
  });
  expect_none("layernorm_forward", [&] {
    layernorm_forward(b.stream, {y, stats, {}, x, {}, weight, weight});
  });
  expect_none("layernorm_backward", [&] {
    layernorm_backward(b.stream, b.arena, {y, dweight, dbias, x, x, stats, weight});
  });
  expect_none("gelu_forward", [&] { gelu_forward(b.stream, y, x); });
  expect_none("gelu_backward", [&] { gelu_backward(b.stream, y, y, x); });
  expect_none("swiglu_forward", [&] { swiglu_forward(b.stream, y, gate_up); });
  expect_none("swiglu_backward", [&] { swiglu_backward(b.stream, gate_up, y, gate_up); });
}

TEST_P(Allocation, matrix_products_allocate_nothing) {
  const auto w = random({kWidth, kWidth}), few = random({3, kWidth}), y_few = random({3, kWidth});
  const auto dw = floats({kWidth, kWidth});
  const MatmulEpilogue epilogue{.bias = weight, .pre_gelu = y, .residual = x};
  const auto out = random({kRows, kWidth});
  expect_none("matmul_forward", [&] { matmul_forward(b.stream, b.arena, out, x, w, epilogue); });
  expect_none("of few rows", [&] { matmul_forward(b.stream, b.arena, y_few, few, w); });
  expect_none("matmul_backward_input",
              [&] { matmul_backward_input(b.stream, b.arena, out, y, w, x); });
  expect_none("matmul_backward_weight",
              [&] { matmul_backward_weight(b.stream, b.arena, dw, dbias, y, x); });
}

TEST_P(Allocation, attention_and_its_heads_allocate_nothing) {
  constexpr std::int64_t kTokens = 70, kSize = 24;
  constexpr int kHeads = 4, kKvHeads = 2;
  const auto qkv = random({kTokens, kHeads + 2 * kKvHeads, kSize}), dqkv = random(qkv.shape);
  const auto attended = random({kTokens, kHeads, kSize}), dout = random(attended.shape);
  const auto lse = floats({1, kHeads, kTokens}), rstd = floats({kTokens, kHeads + kKvHeads});
  const auto q_weight = random({kSize}), dq_weight = floats({kSize}), dk_weight = floats({kSize});
  const auto table = floats({kTokens, kSize});
  std::vector<std::int32_t> places;
  for (std::int32_t t = 0; t < kTokens; ++t)
    places.push_back(t);
  const auto positions = b.integers(places, {1, kTokens});
  const auto starts = b.integers(std::vector<std::int32_t>(kTokens, 0), {1, kTokens});
  const KvCache cache{random({1, kTokens, kKvHeads, kSize}), random({1, kTokens, kKvHeads, kSize})};
  const auto last = positions.view({kTokens}).rows(kTokens - 1, 1).view({1, 1});
  const auto flat = positions.view({kTokens});
  expect_none("rope_table", [&] { rope_table(b.stream, table, 10000, RopeScaling{}); });
  expect_none("rope_forward", [&] { rope_forward(b.stream, qkv, table, flat, kHeads, kKvHeads); });
  expect_none("rope_backward",
              [&] { rope_backward(b.stream, dqkv, table, flat, kHeads, kKvHeads); });
  expect_none("qk_norm_forward", [&] {
    qk_norm_forward(b.stream,
                    {qkv, rstd, qkv, q_weight, q_weight, kHeads, kKvHeads, 1e-5f, table, flat});
  });
  expect_none("qk_norm_backward", [&] {
    qk_norm_backward(b.stream, b.arena,
                     {dqkv, dq_weight, dk_weight, qkv, rstd, q_weight, q_weight, kHeads, kKvHeads});
  });
  expect_none("attention_forward",
              [&] { attention_forward(b.stream, b.arena, attended, lse, qkv, starts); });
  expect_none("attention_backward", [&] {
    attention_backward(b.stream, b.arena, dqkv, dout, attended, lse, qkv, starts);
  });
  expect_none("attention_cached, many tokens",
              [&] { attention_cached(b.stream, b.arena, attended, cache, qkv, positions); });
  expect_none("attention_cached, one token", [&] {
    attention_cached(b.stream, b.arena, attended.rows(0, 1), cache, qkv.rows(0, 1), last);
  });
}

TEST_P(Allocation, embedding_and_loss_allocate_nothing) {
  const auto table = floats({10, kWidth}), valid = b.integers({0}), losses = floats({kRows});
  const CrossEntropy loss{.losses = losses, .targets = ids, .vocabulary = 190};
  const auto rows = random({10, kWidth});
  expect_none("embedding_forward", [&] { embedding_forward(b.stream, {y, ids, rows, ids, rows}); });
  expect_none("embedding_backward", [&] {
    embedding_backward(b.stream, b.arena, {table, table, y, ids, ids});
  });
  expect_none("cross_entropy_loss", [&] { cross_entropy_loss(b.stream, x, loss); });
  expect_none("cross_entropy_gradient", [&] { cross_entropy_gradient(b.stream, x, loss); });
  const auto parts = floats({kRows, 3});
  auto of_ranks = loss;
  of_ranks.parts = floats({2, kRows, 3});
  expect_none("cross_entropy_parts", [&] { cross_entropy_parts(b.stream, parts, x, loss); });
  expect_none("cross_entropy_gradient of parts",
              [&] { cross_entropy_gradient(b.stream, x, of_ranks); });
  expect_none("sum_losses", [&] { sum_losses(b.stream, one, valid, losses, ids); });
}

TEST_P(Allocation, elementwise_reductions_and_fp8_allocate_nothing) {
  const auto wide = floats({kRows, kWidth}), sums = floats({kWidth});
  expect_none("fill", [&] { fill(b.stream, y, 1); });
  expect_none("convert", [&] { convert(b.stream, wide, x); });
  expect_none("random_normal", [&] { random_normal(b.stream, y, {}); });
  const ConstTensor tensors[] = {x, x};
  expect_none("sum_of_squares", [&] { sum_of_squares(b.stream, b.arena, one, tensors); });
  expect_none("absmax", [&] { absmax(b.stream, one, x); });
  expect_none("sum_rows", [&] { sum_rows(b.stream, b.arena, sums, x); });
  const auto row = y.view({kRows * kWidth}).rows(0, kWidth);
  expect_none("sum_pieces", [&] {
    sum_pieces(b.stream, {.out = row, .pieces = x, .residual = row, .absmax = one});
  });
  expect_none("pack_pieces", [&] {
    pack_pieces(b.stream, y.view({kRows, 1, kWidth}), x.view({1, kRows, kWidth}), 0);
  });
}

TEST_P(Allocation, fp8_allocates_nothing) {
  const auto x16 = b.random({128, 256}, DType::bf16), y32 = floats({128, 128});
  for (const auto scaling : {Scaling::tensor, Scaling::rows}) {
    const auto q = poisoned_fp8(b, DType::fp8_e4m3, scaling, {128, 256});
    const auto t = poisoned_fp8(b, DType::fp8_e4m3, scaling, {256, 128});
    expect_none("quantize", [&] {
      quantize(b.stream, q, t, x16, scaling == Scaling::tensor ? one : Tensor{});
    });
    expect_none("matmul_fp8", [&] { matmul_fp8(b.stream, b.arena, {.y = y32, .a = q, .b = q}); });
  }
}

TEST_P(Allocation, the_optimizer_allocates_nothing) {
  const AdamWScalars scalars{one, b.integers({1}), b.integers({1}), floats({5})};
  const auto valid = b.integers({7});
  AdamWRun run;
  run.weight = random({20000});
  run.m = random({20000}), run.v = random({20000});
  run.grad = floats({20000});
  run.first_index = 3;
  expect_none("adamw_control", [&] { adamw_control(b.stream, scalars, {one, one, valid}, {}); });
  expect_none("adamw_update", [&] { adamw_update(b.stream, {&run, 1}, scalars, {}); });
}

INSTANTIATE_TEST_SUITE_P(types, Allocation, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::allocation_test

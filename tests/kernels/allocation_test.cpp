// Operators allocate nothing: global operator new counts, on every thread, while each runs.
#include <atomic>
#include <cstdlib>
#include <gtest/gtest.h>
#include <new>

#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/swiglu.h"
#include "tests/testing.h"

namespace {
std::atomic<std::int64_t> allocations{0};

void* counted(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) {
  return counted(bytes);
}
void* operator new[](std::size_t bytes) {
  return counted(bytes);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}

namespace lockstep::testing {
namespace {

class Allocation : public ::testing::TestWithParam<DType> {
 protected:
  template <class Call>
  void expect_none(const char* what, Call&& call) {
    const auto before = allocations.load();
    call();
    EXPECT_EQ(allocations.load() - before, 0) << what;
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
  const auto before = allocations.load();
  delete new int(3);
  EXPECT_EQ(allocations.load() - before, 1);
}

TEST_P(Allocation, norms_and_activations_allocate_nothing) {
  const auto rstd = floats({kRows}), gate_up = random({kRows, 2 * kWidth});
  expect_none("rmsnorm_forward",
              [&] { rmsnorm_forward(b.stream, y, rstd, {}, x, {}, weight, 1e-5f); });
  expect_none("rmsnorm_backward",
              [&] { rmsnorm_backward(b.stream, b.arena, y, dweight, x, x, rstd, weight); });
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

TEST_P(Allocation, embedding_and_loss_allocate_nothing) {
  const auto table = floats({10, kWidth}), valid = b.integers({0}), losses = floats({kRows});
  const CrossEntropy loss{.losses = losses, .targets = ids, .vocabulary = 190};
  const auto rows = random({10, kWidth});
  expect_none("embedding_forward", [&] { embedding_forward(b.stream, y, ids, rows, ids, rows); });
  expect_none("embedding_backward",
              [&] { embedding_backward(b.stream, table, table, y, ids, ids); });
  expect_none("cross_entropy_loss", [&] { cross_entropy_loss(b.stream, x, loss); });
  expect_none("cross_entropy_gradient", [&] { cross_entropy_gradient(b.stream, x, loss); });
  expect_none("sum_losses", [&] { sum_losses(b.stream, one, valid, losses, ids); });
}

TEST_P(Allocation, elementwise_reductions_and_fp8_allocate_nothing) {
  const auto q = b.poisoned({kRows, kWidth}, DType::fp8_e4m3), blocks = floats({1, 2});
  const auto wide = floats({kRows, kWidth});
  expect_none("fill", [&] { fill(b.stream, y, 1); });
  expect_none("convert", [&] { convert(b.stream, wide, x); });
  expect_none("random_normal", [&] { random_normal(b.stream, y, {}); });
  expect_none("sum_of_squares", [&] { sum_of_squares(b.stream, b.arena, one, x); });
  expect_none("absmax", [&] { absmax(b.stream, b.arena, one, x); });
  expect_none("quantize", [&] { quantize(b.stream, q, one, x, one); });
  expect_none("dequantize", [&] { dequantize(b.stream, y, q, one); });
  expect_none("quantize_blocks", [&] { quantize_blocks(b.stream, q, blocks, x); });
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
  expect_none("adamw_update", [&] { adamw_update(b.stream, run, scalars, {}); });
}

INSTANTIATE_TEST_SUITE_P(types, Allocation, kFloatTypes, dtype_name);

}  // namespace
}  // namespace lockstep::testing

// Linear in fp8 with numbers that fp8 represents exactly. All its quantizations, transpositions and
// matmuls give the results of bf16.
#include <gtest/gtest.h>

#include "kernels/reduce.h"
#include "model/linear.h"
#include "tests/testing.h"

namespace lockstep::testing::linear_fp8_test {

constexpr std::int64_t kTokens = 128, kInputs = 256, kOutputs = 384;

struct Layer {
  Layer(Fp8Matmuls fp8, bool gelu)
      : params(comms,
               {.compute_dtype = DType::bf16,
                .fp8 = fp8,
                .fp8_gradients = fp8 == Fp8Matmuls::block ? DType::fp8_e4m3 : DType::fp8_e5m2}),
        unit(params.add_unit("unit")),
        linear(params, unit,
               {.parts = {{"a", kOutputs - 128}, {"b", 128}}, .inputs = kInputs, .bias = true}),
        uses_gelu(gelu) {
    params.allocate(b.arena, b.stream);
    const auto& shard = params.shards()[0];
    for (const Segment& segment : shard.segments) {
      const auto flat = shard.master.rows(segment.shard_begin, segment.count);
      const auto& spec = params.spec(segment.id);
      if (spec.shape.rank == 2)
        fill_exact(flat, spec.shape, spec.name == "b.weight" ? kOutputs - 128 : 0);
      else
        for (std::int64_t i = 0; i < segment.count; ++i)
          Bench::set(flat, i, static_cast<double>(i % 7) - 3);
    }
    params.refresh_weights(b.stream);
    params.begin_step(b.stream);
  }

  // Numbers n 2^-8 with n in {0, 1, 2, 4, ..., 256}, or +-448 on diagonals. Each 128 elements of a
  // row or column have one +-448, so that their scale is 2^-8 as E4M3.
  void fill_exact(Tensor t, const Shape& shape, std::int64_t first_row = 0) {
    const auto purpose = ++b.draws;
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      const auto word = philox(b.seed, purpose, static_cast<std::uint64_t>(i))[0];
      const double sign = word % 2 == 0 ? 1 : -1;
      const bool most = (i / shape[1] + first_row + i % shape[1]) % 64 == 0;
      const double n = most ? 448 : word / 2 % 10 == 0 ? 0 : 1 << (word / 2 % 10 - 1);
      Bench::set(t, i, sign * n / 256);
    }
  }
  // The same for E5M2, whose largest is 57344 = 448 * 128.
  void fill_exact_gradient(Tensor t, DType type) {
    fill_exact(t, t.shape);
    if (type == DType::fp8_e4m3) return;
    for (std::int64_t i = 0; i < t.elements(); ++i)
      if (std::abs(get(t, i)) == 1.75) Bench::set(t, i, get(t, i) * 128);
  }

  Tensor most_of(ConstTensor t) {
    const auto m = b.arena.allocate("absmax", DType::fp32, {1});
    absmax(b.stream, m, t);
    return m;
  }

  struct Results {
    Doubles y, pre_gelu, dx, dweight, dbias;
    double y_most = 0, dx_most = 0;
  };
  Results run(DType gradients) {
    Tensor x = b.arena.allocate("x", DType::bf16, {kTokens, kInputs});
    fill_exact(x, x.shape);
    const auto residual = b.random({kTokens, kOutputs}, DType::bf16);
    const auto y = b.poisoned({kTokens, kOutputs}, DType::bf16);
    const auto pre_gelu = uses_gelu ? b.poisoned(y.shape, DType::bf16) : Tensor{};
    const auto y_most = b.poisoned({1}, DType::fp32), dx_most = b.poisoned({1}, DType::fp32);
    const auto positions = b.integers(std::vector<std::int32_t>(kTokens), {1, kTokens});
    const StepContext step{.compute = b.stream,
                           .scratch = b.arena,
                           .params = params,
                           .comms = comms,
                           .positions = positions,
                           .document_start = {},
                           .rope_table = {},
                           .cudnn_attention = false,
                           .fp8 = params.fp8()};
    const auto use = params.use(unit, b.stream);
    const LinearInput input{x, most_of(x)};
    if (uses_gelu)
      linear.forward(step, use, y, input, {.pre_gelu = pre_gelu, .absmax = y_most});
    else
      linear.forward(step, use, y, input, {.residual = residual});

    const auto dy = b.arena.allocate("dy", DType::bf16, {kTokens, kOutputs});
    fill_exact_gradient(dy, gradients);
    const auto dx = b.poisoned({kTokens, kInputs}, DType::bf16);
    const auto before = b.random({kTokens, kInputs}, DType::bf16);
    linear.backward(step, use, dx, {dy, most_of(dy)}, input, uses_gelu ? before : Tensor{},
                    dx_most);
    Results r{doubles(y), doubles(pre_gelu), doubles(dx), doubles(params.stacked_grad({unit, 0})),
              doubles(params.stacked_grad({unit, 2}))};
    if (uses_gelu && params.fp8() == Fp8Matmuls::tensor)
      r.y_most = get(y_most, 0), r.dx_most = get(dx_most, 0);
    return r;
  }

  Bench b;
  Comms comms = make_comms();
  ParamStore params;
  int unit;
  Linear linear;
  bool uses_gelu;
};

double largest(const Doubles& values) {
  double most = 0;
  for (const double v : values)
    most = std::max(most, std::abs(v));
  return most;
}

class LinearFp8 : public ::testing::TestWithParam<std::tuple<Fp8Matmuls, bool>> {};
INSTANTIATE_TEST_SUITE_P(all, LinearFp8,
                         ::testing::Combine(::testing::Values(Fp8Matmuls::tensor,
                                                              Fp8Matmuls::block),
                                            ::testing::Bool()));

TEST_P(LinearFp8, of_exact_fp8_values_equals_bf16) {
  const auto [fp8, gelu] = GetParam();
  Layer in_fp8(fp8, gelu), in_bf16(Fp8Matmuls::off, gelu);
  // The gradients are drawn for the type they are rounded to.
  const auto gradients = fp8 == Fp8Matmuls::block ? DType::fp8_e4m3 : DType::fp8_e5m2;
  const auto actual = in_fp8.run(gradients), expected = in_bf16.run(gradients);
  const double bf16 = tolerance(DType::bf16), fp32 = tolerance(DType::fp32);
  expect_close(actual.y, expected.y, bf16, "y");
  expect_close(actual.pre_gelu, expected.pre_gelu, bf16, "pre_gelu");
  expect_close(actual.dx, expected.dx, bf16, "dx");
  expect_close(actual.dweight, expected.dweight, fp32, "dweight");
  expect_close(actual.dbias, expected.dbias, fp32, "dbias");
  if (gelu && fp8 == Fp8Matmuls::tensor) {
    EXPECT_EQ(actual.y_most, largest(actual.y));
    EXPECT_EQ(actual.dx_most, largest(actual.dx));
  }
}

}  // namespace lockstep::testing::linear_fp8_test

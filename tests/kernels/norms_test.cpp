// Tests of RMSNorm, LayerNorm and qk-norm besides the properties of each operator (cases/).
#include <gtest/gtest.h>

#include "kernels/layernorm.h"
#include "kernels/qk_norm.h"
#include "kernels/rmsnorm.h"
#include "tests/kernels/heads.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::norms_test {

// The variance takes two passes, because a difference of large squares would lose its digits.
TEST(LayerNorm, a_large_mean_does_not_destroy_the_variance) {
  Bench b;
  const Shape shape{5, 768};
  const auto x = b.random(shape, DType::fp32);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    Bench::set(x, i, 1000 + get(x, i));
  const auto weight = b.random({768}, DType::fp32), bias = b.random({768}, DType::fp32);
  const auto y = b.poisoned(shape, DType::fp32), stats = b.poisoned({5, 2}, DType::fp32);
  layernorm_forward(b.stream, {y, stats, {}, x, {}, weight, bias});
  // The mean is rounded to 2^-24 x 1000, 1e-4 of the deviation.
  expect_close(y, reference::layernorm(doubles(x), doubles(weight), doubles(bias), 1e-5).y, 3e-4,
               "y");
}

TEST(RmsNorm, mismatched_shapes_are_rejected_by_name) {
  Bench b;
  const auto x = b.random({4, 8}, DType::fp32), rstd = b.random({4}, DType::fp32);
  const auto weight = b.random({9}, DType::fp32);
  expect_refused("weight is [9], expected [8]", [&] {
    rmsnorm_forward(b.stream, {x, rstd, {}, x, {}, weight, 1e-5f});
  });
}
TEST(LayerNorm, mismatched_shapes_are_rejected_by_name) {
  Bench b;
  const auto x = b.random({4, 8}, DType::fp32), stats = b.random({4, 2}, DType::fp32);
  const auto weight = b.random({8}, DType::fp32), bias = b.random({9}, DType::fp32);
  expect_refused("bias is [9], expected [8]", [&] {
    layernorm_forward(b.stream, {x, stats, {}, x, {}, weight, bias});
  });
  EXPECT_THROW(layernorm_forward(b.stream, {x, stats, {}, x, x, weight, weight}), Error);
}
TEST(QkNorm, mismatched_arguments_are_rejected_by_name) {
  Bench b;
  struct Call {
    std::int64_t K;
    Shape table;
    std::vector<std::int32_t> positions = {0, 4, 2};
    Shape rstd = {3, 3};
    int heads = 2;
  };
  const auto call = [&](const Call& c) {
    const auto qkv = b.random({3, 4, c.K}, DType::fp32), weight = b.random({c.K}, DType::fp32);
    qk_norm_forward(b.stream, {qkv, b.random(c.rstd, DType::fp32), qkv, weight, weight, c.heads, 1,
                               1e-6f, c.table.rank > 0 ? b.random(c.table, DType::fp32) : Tensor{},
                               c.positions.empty() ? Tensor{} : b.integers(c.positions)});
  };
  call({8, {5, 8}});
  call({8, {}, {}});
  for (const auto& [part, refused] : std::initializer_list<std::pair<const char*, Call>>{
           {"table is [5, 6], expected [5, 8]", {8, {5, 6}}},
           {"qkv is [3, 4, 7], expected [N, 4, K] with K even", {7, {5, 7}}},
           {"positions[1] is 5, but the rope table has rows 0 to 4", {8, {5, 8}, {0, 5, 2}}},
           {"a rope table comes with positions", {8, {5, 8}, {}}},
           {"rstd is [3, 4], expected [3, 3]", {8, {}, {}, {3, 4}}},
           {"qkv is [3, 4, 8], expected [N, 5, K]", {8, {}, {}, {3, 3}, 3}}})
    expect_refused(part, [&] { call(refused); });
}

TEST(RmsNorm, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  auto s = doubles(b.random({3, 5}, DType::fp32)), weight = doubles(b.random({5}, DType::fp32));
  const auto dy = doubles(b.random({3, 5}, DType::fp32));
  const auto loss = [&] { return reference::dot(dy, reference::rmsnorm(s, weight, 1e-5).y); };
  const auto g = reference::rmsnorm_gradient(dy, s, weight, 1e-5);
  expect_close(g.ds, finite_differences(s, loss), 1e-7, "ds");
  expect_close(g.dweight, finite_differences(weight, loss), 1e-7, "dweight");
}
TEST(LayerNorm, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  auto s = doubles(b.random({3, 5}, DType::fp32)), weight = doubles(b.random({5}, DType::fp32));
  auto bias = doubles(b.random({5}, DType::fp32));
  const auto dy = doubles(b.random({3, 5}, DType::fp32));
  const auto loss = [&] {
    return reference::dot(dy, reference::layernorm(s, weight, bias, 1e-5).y);
  };
  const auto g = reference::layernorm_gradient(dy, s, weight, 1e-5);
  expect_close(g.ds, finite_differences(s, loss), 1e-7, "ds");
  expect_close(g.dweight, finite_differences(weight, loss), 1e-7, "dweight");
  expect_close(g.dbias, finite_differences(bias, loss), 1e-7, "dbias");
}
TEST(QkNorm, the_reference_gradient_with_a_table_is_the_derivative_of_the_reference) {
  Bench b;
  Draw draw(1);
  Operator o(b, draw, {3, 2, 1, 6}, DType::fp32, 0);
  const Heads s{o.size};
  const Turns turns(o, s, {});
  auto qkv = doubles(b.random(s.qkv(), DType::fp32));
  auto q_weight = doubles(b.random({s.K}, DType::fp32));
  auto k_weight = doubles(b.random({s.K}, DType::fp32));
  const auto dout = doubles(b.random(s.qkv(), DType::fp32));
  const auto loss = [&] {
    return reference::dot(dout,
                          turns.forward(reference::qk_norm(qkv, s, q_weight, k_weight).out, s));
  };
  const auto g = reference::qk_norm_gradient(turns.backward(dout, s), qkv, s, q_weight, k_weight);
  expect_close(g.dqkv, finite_differences(qkv, loss), 1e-7, "dqkv");
  expect_close(g.dq_weight, finite_differences(q_weight, loss), 1e-7, "dq_weight");
  expect_close(g.dk_weight, finite_differences(k_weight, loss), 1e-7, "dk_weight");
}

}  // namespace lockstep::testing::norms_test

#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include "tests/kernels/draw.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/reference_swiglu.h"
#include "tests/testing.h"

namespace lockstep::testing::swiglu_test {

const Shape kShapes[] = {{1, 1}, {3, 16}, {7, 33}, {130, 257}};  // [N, F]

class SwiGlu : public ::testing::TestWithParam<DType> {};

TEST_P(SwiGlu, forward_equals_the_reference) {
  for (const auto& shape : kShapes) {
    Bench b;
    const auto gate_up = b.random({shape[0], 2 * shape[1]}, GetParam(), 4);
    const auto hidden = b.poisoned(shape, GetParam());
    swiglu_forward(b.stream, hidden, gate_up);
    expect_close(hidden, reference::swiglu(doubles(gate_up), static_cast<std::size_t>(shape[1])),
                 tolerance(GetParam()), "hidden");
  }
}

TEST_P(SwiGlu, backward_equals_the_reference_also_in_place) {
  for (const auto& shape : kShapes) {
    Bench b;
    const auto gate_up = b.random({shape[0], 2 * shape[1]}, GetParam(), 4);
    const auto dhidden = b.random(shape, GetParam());
    const auto dgate_up = b.poisoned(gate_up.shape, GetParam());
    swiglu_backward(b.stream, dgate_up, dhidden, gate_up);
    expect_close(dgate_up,
                 reference::swiglu_gradient(doubles(dhidden), doubles(gate_up),
                                            static_cast<std::size_t>(shape[1])),
                 tolerance(GetParam()), "dgate_up");
    swiglu_backward(b.stream, gate_up, dhidden, gate_up);
    expect_bitwise_equal(gate_up, dgate_up, "dgate_up in place");
  }
}

void check_random(Draw& draw, DType dtype) {
  const auto N = draw.size(300), F = draw.size(900);
  SCOPED_TRACE(str("N ", N, " F ", F));
  auto b = draw.bench();
  const auto gate_up = b.random({N, 2 * F}, dtype, 4), dhidden = b.random({N, F}, dtype);
  const auto hidden = b.poisoned({N, F}, dtype), dgate_up = b.poisoned({N, 2 * F}, dtype);
  const auto in = doubles(gate_up);
  const auto columns = static_cast<std::size_t>(F);
  swiglu_forward(b.stream, hidden, gate_up);
  expect_close(hidden, reference::swiglu(in, columns), tolerance(dtype), "hidden", 1);
  swiglu_backward(b.stream, dgate_up, dhidden, gate_up);
  expect_close(dgate_up, reference::swiglu_gradient(doubles(dhidden), in, columns),
               tolerance(dtype), "dgate_up", 1);
}
TEST_P(SwiGlu, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(SwiGlu, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

TEST(SwiGluContract, a_shape_that_does_not_fit_is_refused_by_name) {
  Bench b;
  const auto gate_up = b.random({4, 10}, DType::fp32);
  try {
    swiglu_forward(b.stream, b.random({4, 10}, DType::fp32), gate_up);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("gate_up is [4, 10], expected [4, 20]"),
              std::string::npos);
  }
}

TEST(SwiGluContract, the_reference_gradient_is_the_derivative_of_the_reference) {
  Bench b;
  auto gate_up = doubles(b.random({3, 10}, DType::fp32, 3));
  const auto dhidden = doubles(b.random({3, 5}, DType::fp32));
  const auto loss = [&] { return reference::dot(dhidden, reference::swiglu(gate_up, 5)); };
  expect_close(reference::swiglu_gradient(dhidden, gate_up, 5), finite_differences(gate_up, loss),
               1e-7, "dgate_up");
}

INSTANTIATE_TEST_SUITE_P(types, SwiGlu, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::swiglu_test

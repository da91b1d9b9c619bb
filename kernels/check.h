// Checks that operators share. The messages name the tensor and both sides.
#pragma once

#include "core/tensor.h"

namespace lockstep {

inline void check_shape(const char* what, ConstTensor t, const Shape& expected) {
  LOCKSTEP_CHECK(t.shape == expected, what, " is ", t.shape, ", expected ", expected);
}

inline void check_dtype(const char* what, ConstTensor t, DType expected) {
  LOCKSTEP_CHECK(t.dtype == expected, what, " is ", name(t.dtype), ", expected ", name(expected));
}

inline void check_tensor(const char* what, ConstTensor t, const Shape& shape, DType dtype) {
  check_shape(what, t, shape);
  check_dtype(what, t, dtype);
}

inline void check_float(const char* what, ConstTensor t) {
  LOCKSTEP_CHECK(t.dtype == DType::fp32 || t.dtype == DType::bf16, what, " is ", name(t.dtype),
                 ", expected fp32 or bf16");
}

// The backward passes of norms sum dweight by blocks of rows, then the blocks in order. How many
// blocks depends on N alone: the sum has one order, whatever the threads.
constexpr std::int64_t norm_row_blocks(std::int64_t N) {
  return N < 8 ? 1 : N < 256 ? N / 8 : 32;
}

// Calls f with a value of the element type, so that a kernel template is chosen by dtype:
// with_float(x.dtype, [&]<class T>(T) { kernel(x.as<T>()); });
template <class F>
void with_float(DType dtype, F&& f) {
  if (dtype == DType::bf16) {
    f(BFloat16{});
  } else {
    f(0.0f);
  }
}

}  // namespace lockstep

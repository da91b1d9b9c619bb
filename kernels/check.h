// This file defines checks that operators share. The messages name the tensor, its value and the
// expected value.
#pragma once

#include "core/op_log.h"
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

}  // namespace lockstep

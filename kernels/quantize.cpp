#include "kernels/quantize.h"

#include "core/integer.h"
#include "kernels/check.h"

namespace lockstep {
namespace {

void check_fp8(const char* what, ConstTensor t) {
  LOCKSTEP_CHECK(t.dtype == DType::fp8_e4m3 || t.dtype == DType::fp8_e5m2, what, " is ",
                 name(t.dtype), ", expected fp8_e4m3 or fp8_e5m2");
}

Shape blocks_of(ConstTensor t) {
  return {divide_up(t.shape[0], kQuantizeBlock), divide_up(t.shape[1], kQuantizeBlock)};
}

}  // namespace

void quantize(Stream& stream, Tensor q, Tensor scale, ConstTensor x, ConstTensor absmax) {
  check_float("x", x);
  check_fp8("q", q);
  check_shape("q", q, x.shape);
  check_tensor("scale", scale, {1}, DType::fp32);
  check_tensor("absmax", absmax, {1}, DType::fp32);
  LOCKSTEP_CHECK(scale.data != absmax.data, "scale and absmax are one tensor, expected two");
  LOCKSTEP_DISPATCH(stream, quantize(stream, q, scale, x, absmax));
}

void quantize_blocks(Stream& stream, Tensor q, Tensor scales, ConstTensor x) {
  LOCKSTEP_CHECK(x.shape.rank == 2, "x is ", x.shape, ", expected [R, C]");
  check_float("x", x);
  check_fp8("q", q);
  check_shape("q", q, x.shape);
  check_tensor("scales", scales, blocks_of(x), DType::fp32);
  LOCKSTEP_DISPATCH(stream, quantize_blocks(stream, q, scales, x));
}

void dequantize(Stream& stream, Tensor y, ConstTensor q, ConstTensor scale) {
  check_float("y", y);
  check_fp8("q", q);
  check_shape("q", q, y.shape);
  check_dtype("scale", scale, DType::fp32);
  if (scale.shape.rank == 1) {
    check_shape("scale", scale, {1});
  } else {
    LOCKSTEP_CHECK(q.shape.rank == 2, "q is ", q.shape, ", expected [R, C] for scales of blocks");
    check_shape("scale", scale, blocks_of(q));
  }
  LOCKSTEP_DISPATCH(stream, dequantize(stream, y, q, scale));
}

}  // namespace lockstep

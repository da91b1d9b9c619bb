#include "kernels/quantize.h"

#include "core/integer.h"
#include "kernels/check.h"

namespace lockstep {
namespace {

void check_output(const char* what, const Fp8Matrix& m, const Shape& shape, Scaling scaling) {
  check_shape(what, m.q, shape);
  LOCKSTEP_CHECK(m.q.dtype == DType::fp8_e4m3 || m.q.dtype == DType::fp8_e5m2, what, " is ",
                 name(m.q.dtype), ", expected fp8_e4m3 or fp8_e5m2");
  LOCKSTEP_CHECK(m.scaling == scaling, "matrix and transposed share their scales differently");
  check_tensor("scales", m.scales, scales_shape(scaling, shape), DType::fp32);
}

}  // namespace

Shape scales_shape(Scaling scaling, const Shape& matrix) {
  const auto blocks = [](std::int64_t n) { return divide_up(n, kScaledBlock); };
  switch (scaling) {
    case Scaling::tensor: return {1};
    case Scaling::rows: return {blocks(matrix[1]), matrix[0]};
    case Scaling::blocks: return {blocks(matrix[0]), round_up(blocks(matrix[1]), 4)};
  }
  return {};
}

void quantize(Stream& stream, const Fp8Matrix& matrix, const Fp8Matrix& transposed, ConstTensor x,
              ConstTensor absmax) {
  LOCKSTEP_CHECK(x.shape.rank == 2, "x is ", x.shape, ", expected [R, C]");
  const auto R = x.shape[0], C = x.shape[1];
  LOCKSTEP_CHECK(R % 16 == 0 && C % 16 == 0, "x is ", x.shape, ", expected multiples of 16");
  check_dtype("x", x, DType::bf16);
  LOCKSTEP_CHECK(matrix || transposed, "nothing to write, expected matrix, transposed or both");
  const Scaling scaling = matrix ? matrix.scaling : transposed.scaling;
  if (matrix) check_output("matrix", matrix, {R, C}, scaling);
  if (transposed) check_output("transposed", transposed, {C, R}, scaling);
  LOCKSTEP_CHECK(!matrix || !transposed || matrix.q.dtype == transposed.q.dtype,
                 "matrix and transposed are of two types");
  LOCKSTEP_CHECK(bool(absmax) == (scaling == Scaling::tensor),
                 "absmax comes with one scale a tensor, and only there");
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  const OpLog::Call call(
      stream, memory_op("quantize", x.dtype, {x, matrix.q, matrix.scales, transposed.q}));
  LOCKSTEP_DISPATCH(stream, quantize(stream, matrix, transposed, x, absmax));
}

}  // namespace lockstep

#include "kernels/matmul_fp8.h"

#include "kernels/check.h"

namespace lockstep {
namespace {

void check_matrix(const char* what, const ConstFp8Matrix& m) {
  LOCKSTEP_CHECK(m.q.shape.rank == 2, what, " is ", m.q.shape, ", expected [rows, K]");
  LOCKSTEP_CHECK(m.q.dtype == DType::fp8_e4m3 || m.q.dtype == DType::fp8_e5m2, what, " is ",
                 name(m.q.dtype), ", expected fp8_e4m3 or fp8_e5m2");
  check_tensor("scales", m.scales, scales_shape(m.scaling, m.q.shape), DType::fp32);
}

}  // namespace

void matmul_fp8(Stream& stream, Arena& scratch, const MatmulFp8& args) {
  const auto &a = args.a, &b = args.b;
  check_matrix("a", a);
  check_matrix("b", b);
  const auto R = a.q.shape[0], K = a.q.shape[1], C = b.q.shape[0];
  check_shape("b", b.q, {C, K});
  LOCKSTEP_CHECK(a.q.dtype == DType::fp8_e4m3 || b.q.dtype == DType::fp8_e4m3,
                 "a and b are both fp8_e5m2, expected one of them at most");
  const bool whole = a.scaling == Scaling::tensor;
  LOCKSTEP_CHECK(
      whole == (b.scaling == Scaling::tensor) && a.scaling != Scaling::blocks,
      "scales of a and b, expected of tensors, or of rows for a and rows or blocks for b");
  LOCKSTEP_CHECK(whole || !args.fast, "fast sums with scales of rows, expected of tensors");
  const std::int64_t unit = size_multiple(a.scaling);
  LOCKSTEP_CHECK(R % 16 == 0 && C % unit == 0 && K % unit == 0, "a is ", a.q.shape, ", b ",
                 b.q.shape, ", expected multiples of 16, and of ", unit, " for b and for K");
  check_float("y", args.y);
  check_shape("y", args.y, {R, C});
  if (args.residual) check_tensor("residual", args.residual, args.y.shape, args.y.dtype);
  if (args.bias) {
    check_tensor("bias", args.bias, {C}, DType::bf16);
    check_dtype("y with a bias", args.y, DType::bf16);
  }
  if (args.y.elements() == 0) return;
  const OpLog::Call call(stream, product_op("matmul_fp8", a.q.dtype, R, C, K,
                                            {a.q, b.q, a.scales, b.scales, args.y, args.residual}));
  LOCKSTEP_DISPATCH_SCRATCH(stream, matmul_fp8(stream, scratch, args));
}

}  // namespace lockstep

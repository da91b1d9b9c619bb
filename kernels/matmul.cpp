#include "kernels/matmul.h"

#include "kernels/check.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

void check_matrix(const char* what, ConstTensor t, const char* dims) {
  LOCKSTEP_CHECK(t.shape.rank == 2, what, " is ", t.shape, ", expected ", dims);
  LOCKSTEP_CHECK(t.shape[1] > 0, what, " is ", t.shape, ", expected columns");
}

}  // namespace

void matmul_forward(Stream& stream, Arena& scratch, Tensor y, ConstTensor x, ConstTensor weight,
                    const MatmulEpilogue& epilogue) {
  check_matrix("x", x, "[N, I]");
  check_matrix("weight", weight, "[O, I]");
  const auto N = x.shape[0], I = x.shape[1], O = weight.shape[0];
  LOCKSTEP_CHECK(O > 0, "weight is ", weight.shape, ", expected rows");
  check_float("x", x);
  check_tensor("weight", weight, {O, I}, x.dtype);
  check_shape("y", y, {N, O});
  if (y.dtype != DType::fp32) check_dtype("y", y, x.dtype);
  if (epilogue.bias) check_tensor("bias", epilogue.bias, {O}, x.dtype);
  if (epilogue.pre_gelu) check_tensor("pre_gelu", epilogue.pre_gelu, {N, O}, y.dtype);
  if (epilogue.residual) check_tensor("residual", epilogue.residual, {N, O}, y.dtype);
  if (N == 0) return;
  LOCKSTEP_CHECK(!epilogue.pre_gelu || !epilogue.residual || epilogue.residual.data != y.data,
                 "y is the residual, expected another tensor beside pre_gelu");
  const OpLog::Call call(
      stream, product_op("matmul_forward", x.dtype, N, O, I,
                         {x, weight, y, epilogue.bias, epilogue.pre_gelu, epilogue.residual}));
  LOCKSTEP_DISPATCH_SCRATCH(stream, matmul_forward(stream, scratch, y, x, weight, epilogue));
}

void matmul_backward_input(Stream& stream, Arena& scratch, Tensor dx, ConstTensor dy,
                           ConstTensor weight, ConstTensor pre_gelu) {
  check_matrix("dy", dy, "[N, O]");
  check_matrix("weight", weight, "[O, I]");
  const auto N = dy.shape[0], O = dy.shape[1], I = weight.shape[1];
  check_float("dy", dy);
  check_tensor("weight", weight, {O, I}, dy.dtype);
  check_tensor("dx", dx, {N, I}, dy.dtype);
  if (pre_gelu) check_tensor("pre_gelu", pre_gelu, {N, I}, dy.dtype);
  if (N == 0) return;
  const OpLog::Call call(
      stream, product_op("matmul_backward_input", dy.dtype, N, I, O, {dx, dy, weight, pre_gelu}));
  LOCKSTEP_DISPATCH_SCRATCH(stream,
                            matmul_backward_input(stream, scratch, dx, dy, weight, pre_gelu));
}

void matmul_backward_weight(Stream& stream, Arena& scratch, Tensor dweight, Tensor dbias,
                            ConstTensor dy, ConstTensor x, bool add) {
  check_matrix("dy", dy, "[N, O]");
  check_matrix("x", x, "[N, I]");
  const auto N = dy.shape[0], O = dy.shape[1], I = x.shape[1];
  check_float("dy", dy);
  check_tensor("x", x, {N, I}, dy.dtype);
  check_tensor("dweight", dweight, {O, I}, DType::fp32);
  if (dbias) check_tensor("dbias", dbias, {O}, DType::fp32);
  if (N == 0) {
    if (!add) fill(stream, dweight, 0.0f);
    return;
  }
  const OpLog::Call call(stream, product_op("matmul_backward_weight", dy.dtype, O, I, N,
                                            {dweight, add ? dweight : Tensor{}, dbias, dy, x}));
  LOCKSTEP_DISPATCH_SCRATCH(stream,
                            matmul_backward_weight(stream, scratch, dweight, dbias, dy, x, add));
}

}  // namespace lockstep

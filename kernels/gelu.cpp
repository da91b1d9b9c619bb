#include "kernels/gelu.h"

#include "kernels/check.h"

namespace lockstep {

void gelu_forward(Stream& stream, Tensor y, ConstTensor x, Tensor absmax) {
  check_float("x", x);
  check_tensor("y", y, x.shape, x.dtype);
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  const OpLog::Call call(stream, memory_op("gelu_forward", x.dtype, {x, y}));
  LOCKSTEP_DISPATCH(stream, gelu_forward(stream, y, x, absmax));
}

void gelu_backward(Stream& stream, Tensor dx, ConstTensor dy, ConstTensor x, Tensor absmax) {
  check_float("x", x);
  check_tensor("dx", dx, x.shape, x.dtype);
  check_tensor("dy", dy, x.shape, x.dtype);
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  const OpLog::Call call(stream, memory_op("gelu_backward", x.dtype, {x, dx, dy}));
  LOCKSTEP_DISPATCH(stream, gelu_backward(stream, dx, dy, x, absmax));
}

}  // namespace lockstep

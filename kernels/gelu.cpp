#include "kernels/gelu.h"

#include "kernels/check.h"

namespace lockstep {

void gelu_forward(Stream& stream, Tensor y, ConstTensor x) {
  check_float("x", x);
  check_tensor("y", y, x.shape, x.dtype);
  LOCKSTEP_DISPATCH(stream, gelu_forward(stream, y, x));
}

void gelu_backward(Stream& stream, Tensor dx, ConstTensor dy, ConstTensor x) {
  check_float("x", x);
  check_tensor("dx", dx, x.shape, x.dtype);
  check_tensor("dy", dy, x.shape, x.dtype);
  LOCKSTEP_DISPATCH(stream, gelu_backward(stream, dx, dy, x));
}

}  // namespace lockstep

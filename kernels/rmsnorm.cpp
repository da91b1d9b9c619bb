#include "kernels/rmsnorm.h"

#include "kernels/check.h"

namespace lockstep {

void rmsnorm_forward(Stream& stream, Tensor y, Tensor rstd, Tensor sum, ConstTensor x,
                     ConstTensor residual, ConstTensor weight, float epsilon, Tensor absmax) {
  LOCKSTEP_CHECK(x.shape.rank == 2, "x is ", x.shape, ", expected [N, D]");
  const auto N = x.shape[0], D = x.shape[1];
  check_float("x", x);
  check_tensor("y", y, x.shape, x.dtype);
  check_tensor("rstd", rstd, {N}, DType::fp32);
  check_tensor("weight", weight, {D}, x.dtype);
  LOCKSTEP_CHECK(bool(residual) == bool(sum), "residual and sum come together");
  if (residual) {
    check_tensor("residual", residual, x.shape, x.dtype);
    check_tensor("sum", sum, x.shape, x.dtype);
  }
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  LOCKSTEP_DISPATCH(stream,
                    rmsnorm_forward(stream, y, rstd, sum, x, residual, weight, epsilon, absmax));
}

void rmsnorm_backward(Stream& stream, Arena& scratch, Tensor dx, Tensor dweight, ConstTensor dy,
                      ConstTensor s, ConstTensor rstd, ConstTensor weight, Tensor absmax) {
  LOCKSTEP_CHECK(s.shape.rank == 2, "s is ", s.shape, ", expected [N, D]");
  const auto N = s.shape[0], D = s.shape[1];
  check_float("s", s);
  check_tensor("dx", dx, s.shape, s.dtype);
  check_tensor("dy", dy, s.shape, s.dtype);
  check_tensor("dweight", dweight, {D}, DType::fp32);
  check_tensor("rstd", rstd, {N}, DType::fp32);
  check_tensor("weight", weight, {D}, s.dtype);
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  LOCKSTEP_DISPATCH_SCRATCH(
      stream, rmsnorm_backward(stream, scratch, dx, dweight, dy, s, rstd, weight, absmax));
}

}  // namespace lockstep

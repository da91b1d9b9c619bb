#include "kernels/rmsnorm.h"

#include "kernels/check.h"

namespace lockstep {

void rmsnorm_forward(Stream& stream, const RmsNormForward& args) {
  const auto& x = args.x;
  LOCKSTEP_CHECK(x.shape.rank == 2, "x is ", x.shape, ", expected [N, D]");
  const auto N = x.shape[0], D = x.shape[1];
  check_float("x", x);
  check_tensor("y", args.y, x.shape, x.dtype);
  check_tensor("rstd", args.rstd, {N}, DType::fp32);
  check_tensor("weight", args.weight, {D}, x.dtype);
  LOCKSTEP_CHECK(bool(args.residual) == bool(args.sum), "residual and sum come together");
  if (args.residual) {
    check_tensor("residual", args.residual, x.shape, x.dtype);
    check_tensor("sum", args.sum, x.shape, x.dtype);
  }
  if (args.absmax) check_tensor("absmax", args.absmax, {1}, DType::fp32);
  const OpLog::Call call(stream,
                         memory_op("rmsnorm_forward", x.dtype,
                                   {x, args.y, args.rstd, args.weight, args.residual, args.sum}));
  LOCKSTEP_DISPATCH(stream, rmsnorm_forward(stream, args));
}

void rmsnorm_backward(Stream& stream, Arena& scratch, const RmsNormBackward& args) {
  const auto& s = args.s;
  LOCKSTEP_CHECK(s.shape.rank == 2, "s is ", s.shape, ", expected [N, D]");
  const auto N = s.shape[0], D = s.shape[1];
  check_float("s", s);
  check_tensor("dx", args.dx, s.shape, s.dtype);
  check_tensor("dy", args.dy, s.shape, s.dtype);
  check_tensor("dweight", args.dweight, {D}, DType::fp32);
  check_tensor("rstd", args.rstd, {N}, DType::fp32);
  check_tensor("weight", args.weight, {D}, s.dtype);
  if (args.absmax) check_tensor("absmax", args.absmax, {1}, DType::fp32);
  const OpLog::Call call(stream,
                         memory_op("rmsnorm_backward", s.dtype,
                                   {s, args.dx, args.dy, args.rstd, args.weight, args.dweight}));
  LOCKSTEP_DISPATCH_SCRATCH(stream, rmsnorm_backward(stream, scratch, args));
}

}  // namespace lockstep

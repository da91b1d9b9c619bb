#include "kernels/reduce.h"

#include "kernels/check.h"

namespace lockstep {

void sum_of_squares(Stream& stream, Arena& scratch, Tensor out,
                    std::span<const ConstTensor> tensors) {
  check_tensor("out", out, {1}, DType::fp32);
  if (tensors.empty()) return;
  check_float("tensors", tensors.front());
  for (const ConstTensor& t : tensors)
    check_dtype("tensors", t, tensors.front().dtype);
  Op op = memory_op("sum_of_squares", tensors.front().dtype, {});
  for (const ConstTensor& t : tensors)
    op.bytes += t.bytes();
  const OpLog::Call call(stream, op);
  LOCKSTEP_DISPATCH_SCRATCH(stream, sum_of_squares(stream, scratch, out, tensors));
}

void absmax(Stream& stream, Tensor out, ConstTensor x) {
  check_tensor("out", out, {1}, DType::fp32);
  check_float("x", x);
  const OpLog::Call call(stream, memory_op("absmax", x.dtype, {x}));
  LOCKSTEP_DISPATCH(stream, absmax(stream, out, x));
}

void sum_rows(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  LOCKSTEP_CHECK(x.shape.rank == 2, "x is ", x.shape, ", expected [R, C]");
  check_float("x", x);
  check_tensor("out", out, {x.shape[1]}, DType::fp32);
  const OpLog::Call call(stream, memory_op("sum_rows", x.dtype, {x, out}));
  LOCKSTEP_DISPATCH_SCRATCH(stream, sum_rows(stream, scratch, out, x));
}

}  // namespace lockstep

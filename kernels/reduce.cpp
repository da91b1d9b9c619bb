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
  LOCKSTEP_DISPATCH_SCRATCH(stream, sum_of_squares(stream, scratch, out, tensors));
}

void absmax(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  check_tensor("out", out, {1}, DType::fp32);
  check_float("x", x);
  LOCKSTEP_DISPATCH_SCRATCH(stream, absmax(stream, scratch, out, x));
}

}  // namespace lockstep

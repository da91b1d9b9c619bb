#include "kernels/reduce.h"

#include "kernels/check.h"

namespace lockstep {

void sum_of_squares(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  check_tensor("out", out, {1}, DType::fp32);
  check_float("x", x);
  LOCKSTEP_DISPATCH_SCRATCH(stream, sum_of_squares(stream, scratch, out, x));
}

void absmax(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  check_tensor("out", out, {1}, DType::fp32);
  check_float("x", x);
  LOCKSTEP_DISPATCH_SCRATCH(stream, absmax(stream, scratch, out, x));
}

}  // namespace lockstep

#include "kernels/swiglu.h"

#include "kernels/check.h"

namespace lockstep {

void swiglu_forward(Stream& stream, Tensor hidden, ConstTensor gate_up, Tensor absmax) {
  LOCKSTEP_CHECK(hidden.shape.rank == 2, "hidden is ", hidden.shape, ", expected [N, F]");
  check_float("hidden", hidden);
  check_tensor("gate_up", gate_up, {hidden.shape[0], 2 * hidden.shape[1]}, hidden.dtype);
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  const OpLog::Call call(stream, memory_op("swiglu_forward", hidden.dtype, {hidden, gate_up}));
  LOCKSTEP_DISPATCH(stream, swiglu_forward(stream, hidden, gate_up, absmax));
}

void swiglu_backward(Stream& stream, Tensor dgate_up, ConstTensor dhidden, ConstTensor gate_up,
                     Tensor absmax) {
  LOCKSTEP_CHECK(dhidden.shape.rank == 2, "dhidden is ", dhidden.shape, ", expected [N, F]");
  check_float("dhidden", dhidden);
  check_tensor("gate_up", gate_up, {dhidden.shape[0], 2 * dhidden.shape[1]}, dhidden.dtype);
  check_tensor("dgate_up", dgate_up, gate_up.shape, dhidden.dtype);
  if (absmax) check_tensor("absmax", absmax, {1}, DType::fp32);
  const OpLog::Call call(stream,
                         memory_op("swiglu_backward", dhidden.dtype, {dhidden, gate_up, dgate_up}));
  LOCKSTEP_DISPATCH(stream, swiglu_backward(stream, dgate_up, dhidden, gate_up, absmax));
}

}  // namespace lockstep

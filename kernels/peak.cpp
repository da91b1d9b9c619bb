#include "kernels/peak.h"

namespace lockstep {

double measure_peak_flops(Stream& stream, DType dtype) {
  LOCKSTEP_CHECK(!stream.is_measuring(), "a measuring stream has no peak");
  LOCKSTEP_CHECK(dtype == DType::fp32 || dtype == DType::bf16, "peak of ", name(dtype),
                 ", expected fp32 or bf16");
  if constexpr (kWithCuda) {
    if (stream.is_cuda()) return cuda::measure_peak_flops(stream, dtype);
  }
  LOCKSTEP_DISPATCH_CPU(measure_peak_flops(stream, dtype));
  return 0;
}

}  // namespace lockstep

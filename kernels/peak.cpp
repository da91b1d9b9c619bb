#include "kernels/peak.h"

namespace lockstep {

double measure_peak_flops(Stream& stream, DType dtype) {
  LOCKSTEP_CHECK(!stream.is_measuring(), "a measuring stream has no peak");
  LOCKSTEP_CHECK(dtype == DType::fp32 || dtype == DType::bf16, "peak of ", name(dtype),
                 ", expected fp32 or bf16");
  LOCKSTEP_CHECK(!stream.is_cuda(), "the peak of a GPU is known, not measured");
  LOCKSTEP_DISPATCH_CPU(measure_peak_flops(stream, dtype));
  return 0;
}

}  // namespace lockstep

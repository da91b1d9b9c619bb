#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// The multiply-add rate of a CPU stream, in floating-point operations a second (a multiply-add
// counts as two): what no matrix product can exceed, and what MFU is divided by. Measured:
// independent multiply-adds in registers on all of the stream's threads at once, best of
// 20 rounds, about 50 ms in all; for bf16 those of vdpbf16ps, or where the processor lacks it (or
// LOCKSTEP_CPU forbids it) the fp32 rate, at which such a machine multiplies widened bf16. dtype:
// fp32 or bf16. Throws on a measuring or a CUDA stream.
double measure_peak_flops(Stream& stream, DType dtype);

LOCKSTEP_KERNELS(double measure_peak_flops(Stream& stream, DType dtype);)

}  // namespace lockstep

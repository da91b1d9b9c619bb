#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

// Returns the multiply-add rate of a CPU stream in floating-point operations per second (a
// multiply-add counts as two). No matmul can exceed it, and MFU is divided by it. It is measured
// with independent multiply-adds in registers on all of the stream's threads at once: best of 20
// rounds, about 50 ms in all. For bf16 these are vdpbf16ps. If the CPU lacks it, or LOCKSTEP_CPU
// forbids it, the fp32 rate is returned, because the CPU then multiplies widened bf16. dtype is
// fp32 or bf16. Throws on a measuring or a CUDA stream.
double measure_peak_flops(Stream& stream, DType dtype);

LOCKSTEP_KERNELS(double measure_peak_flops(Stream& stream, DType dtype);)

}  // namespace lockstep

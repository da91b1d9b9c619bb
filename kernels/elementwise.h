#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

void fill(Stream& stream, Tensor out, float value);                 // any type except fp8
void fill_integer(Stream& stream, Tensor out, std::int32_t value);  // exactly; int32 only

// Computes out = x, rounded to the type of out. The types are fp32 or bf16; equal types of any kind
// are copied. x and out have the same number of elements.
void convert(Stream& stream, Tensor out, ConstTensor x);

// RandomNormal holds the arguments of random_normal, which computes out[i] = std * z_i with normal
// z_i. With e = first_index + i, z_i is from word e % 4 of the draw philox(seed, purpose, e / 4).
// Words are paired by Box-Muller. z_i depends only on the index e, not on the threads or on where
// `out` begins.
//   out fp32 or bf16
struct RandomNormal {
  std::uint64_t seed = 0, purpose = 0;
  std::int64_t first_index = 0;
  float std = 1.0f;
};
void random_normal(Stream& stream, Tensor out, const RandomNormal& args);

LOCKSTEP_KERNELS(  // arguments are already checked
    void fill(Stream& stream, Tensor out, float value);
    void fill_integer(Stream& stream, Tensor out, std::int32_t value);
    void convert(Stream& stream, Tensor out, ConstTensor x);
    void random_normal(Stream& stream, Tensor out, const RandomNormal& args);)

}  // namespace lockstep

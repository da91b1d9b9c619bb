#pragma once

#include "kernels/dispatch.h"

namespace lockstep {

void fill(Stream& stream, Tensor out, float value);                 // any type but fp8
void fill_integer(Stream& stream, Tensor out, std::int32_t value);  // exactly; int32 only

// out = x, rounded to the type of out (fp32, bf16; or equal types, copied). Same element count.
void convert(Stream& stream, Tensor out, ConstTensor x);

// out[i] = std * z_i, z normal, drawn from philox(seed, purpose, (first_index + i) / 4): word i % 4
// of a draw, words paired by Box-Muller. A function of the index, never of the threads or of where
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

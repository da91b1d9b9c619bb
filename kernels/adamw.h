#pragma once

#include <span>

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// AdamWScalars holds the inputs of an optimizer step besides gradients. All are on the device, so
// that a step can be replayed as a CUDA graph.
//   learning_rate [1] fp32      step [1] int32: selects the random numbers
//   updates [1] int32: updates applied so far, advanced by adamw_control
//   control [5] fp32, written by adamw_control: gradient scale; 1 / (1 - beta1^u);
//   1 / (1 - beta2^u); 1 if the update is applied, 0 if it is skipped; gradient norm
//   absmax [G] fp32 or absent: the absmax of all runs. adamw_control sets them to 0 if the update
//   is applied. If it is skipped, they keep their values, as the weights do.
struct AdamWScalars {
  ConstTensor learning_rate, step;
  Tensor updates, control;
  Tensor absmax = {};
};

struct AdamWConfig {
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  float weight_decay = 0.1f;        // decoupled: times the learning rate
  float clip_norm = 1.0f;           // global L2 norm; 0: no clipping
  std::int64_t nominal_tokens = 1;  // gradients were divided by this number of tokens
  std::uint64_t seed = 0;           // of stochastic rounding
};

// AdamWSums holds the sums of a step, [1] each: squares of all gradients, losses, valid tokens.
struct AdamWSums {
  ConstTensor squares, loss;  // fp32
  ConstTensor valid_tokens;   // int32
};

// Decides whether the update is applied, and how gradients are scaled. With s = nominal / valid
// tokens and norm = s * sqrt(squares), the gradient scale is s * min(1, clip / norm). The update is
// skipped, and `updates` stays, if loss or norm is not finite, or without a valid token (norm
// counts as 0).
void adamw_control(Stream& stream, const AdamWScalars& scalars, const AdamWSums& sums,
                   const AdamWConfig& config);

// AdamWRun is a run of elements of one parameter. With g = grad * gradient scale, the update is
//   m = b1 m + (1-b1) g,  v = b2 v + (1-b2) g^2,
//   w = w - lr (m c1 / (sqrt(v c2) + epsilon) + weight_decay w)
// w is the master weight if there is one (then weight = round(w)), else the weight itself: fp32, or
// bf16 with stochastic rounding. bf16 moments are rounded stochastically too; rounded to nearest,
// they would stop moving.
//   weight [n] fp32 or bf16      master [n] fp32 or absent      m, v [n] fp32 or both bf16
//   grad [n] fp32
//   absmax [1] fp32, if given: raised to max |weight| as stored, ignoring NaNs; several runs may
//   raise the same
// Rounding depends only on (seed, purpose, step, e), with e the index of the element in the whole
// parameter. It adds 16 random bits to the fp32 bits and truncates. The random bits are half e % 2
// of word (e % 8) / 2 of the draw
//   philox(seed, purpose, t << 62 | (step + 1) << 32 | e / 8),  t = 0 for w, 1 for m, 2 for v.
// So e < 2^35 and 0 <= step < 2^30 - 1. Draws of initial weights have step + 1 = 0.
// Element i of the run has e = first_index + i. If the matrix is divided by columns, it is element
// j = first_index + i of the run's columns (see Columns). The update is fastest if the numbers of
// Columns are multiples of 8.
// Source: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2.
struct AdamWRun {
  // Columns describes `count` neighbouring columns, from element `first` on, of a matrix whose rows
  // have `stride` elements. They are stored as a separate matrix. Its element j is element
  //   e = first + j / count * stride + j % count
  // of the whole matrix. stride < 2^28. count = 0: not divided by columns, e = j.
  struct Columns {
    std::int64_t first = 0, count = 0, stride = 0;
  };
  Tensor weight, master, m, v;
  ConstTensor grad;
  bool decay = true;  // false: weight_decay counts as 0 for this run
  std::uint64_t purpose = 0;
  std::int64_t first_index = 0;
  Columns columns = {};
  Tensor absmax = {};
};
// Updates all runs, which have the same types and do not overlap.
void adamw_update(Stream& stream, std::span<const AdamWRun> runs, const AdamWScalars& scalars,
                  const AdamWConfig& config);

LOCKSTEP_KERNELS(  // arguments are already checked
    void adamw_control(Stream& stream, const AdamWScalars& scalars, const AdamWSums& sums,
                       const AdamWConfig& config);
    void adamw_update(Stream& stream, std::span<const AdamWRun> runs, const AdamWScalars& scalars,
                      const AdamWConfig& config);)

}  // namespace lockstep

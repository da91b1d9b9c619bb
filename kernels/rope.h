#pragma once

#include <cmath>
#include <optional>

#include "kernels/dispatch.h"

namespace lockstep {

// RopeScaling describes how Llama 3.1 scales its frequencies beyond the original context.
// Frequencies with a wavelength above original_context / low_factor are divided by `factor`. Those
// with a wavelength below original_context / high_factor stay. Between the two they blend.
// Source: Llama 3.1's reference code; transformers, modeling_rope_utils, "llama3".
struct RopeScaling {
  float factor = 8.0f, low_factor = 1.0f, high_factor = 4.0f;
  int original_context = 8192;
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// Fills the table that rope_forward and rope_backward read: row p is cos(p f_i) for i < K/2, then
// sin(p f_i), with f_i = theta^(-2i/K), scaled.
//   table [P, K] fp32
void rope_table(Stream& stream, Tensor table, float theta,
                const std::optional<RopeScaling>& scaling);

// Rotates q and k in place: (a, b) = (v_i, v_{i + K/2}) becomes (a cos - b sin, b cos + a sin) with
// the row positions[n] of the table. Value heads stay. With qk-norm, qk_norm_forward does this
// (qk_norm.h).
//   qkv [N, H + 2G, K]: H query heads, G key heads, G value heads      positions [N] int32
// Source: Su et al. 2021, arXiv:2104.09864, eq. 34, in Hugging Face's half-split order.
void rope_forward(Stream& stream, Tensor qkv, ConstTensor table, ConstTensor positions, int heads,
                  int kv_heads);

// Computes the gradient of rope_forward, in place: the rotation by the opposite angle.
//   absmax [1] fp32, if given: set to max |dqkv| of all heads, ignoring NaNs
void rope_backward(Stream& stream, Tensor dqkv, ConstTensor table, ConstTensor positions, int heads,
                   int kv_heads, Tensor absmax = {});

// Throws Error if heads of qkv [N, heads, K] cannot be rotated by table and positions. `what` is
// the name of qkv in messages.
void check_rope(const char* what, const Stream& stream, ConstTensor qkv, ConstTensor table,
                ConstTensor positions);

// Returns f_i above, which is 2 pi / the wavelength of dimension pair i. Each step is rounded to
// fp32, as in transformers, because at position 8191 the last bit of a frequency moves an angle by
// 5e-4.
LOCKSTEP_HOST_DEVICE inline float inverse_frequency(std::int64_t i, std::int64_t K, float theta,
                                                    const std::optional<RopeScaling>& scaling) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(K);
  const float f = 1.0f / static_cast<float>(pow(static_cast<double>(theta), exponent));
  if (!scaling) return f;
  const auto context = static_cast<float>(scaling->original_context);
  const auto wavelength = static_cast<float>(2 * M_PI) / f;
  if (wavelength > context / scaling->low_factor) return f / scaling->factor;
  if (wavelength < context / scaling->high_factor) return f;
  const float smooth =
      (context / wavelength - scaling->low_factor) / (scaling->high_factor - scaling->low_factor);
  const volatile float kept = smooth * f;  // rounded: compilers would fuse it with the addition
  return (1 - smooth) * f / scaling->factor + kept;
}

LOCKSTEP_KERNELS(  // arguments are already checked
    void rope_table(Stream& stream, Tensor table, float theta,
                    const std::optional<RopeScaling>& scaling);
    void rope_forward(Stream& stream, Tensor qkv, ConstTensor table, ConstTensor positions,
                      int heads, int kv_heads);
    void rope_backward(Stream& stream, Tensor dqkv, ConstTensor table, ConstTensor positions,
                       int heads, int kv_heads, Tensor absmax);)

}  // namespace lockstep

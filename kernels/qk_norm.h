#pragma once

#include "core/arena.h"
#include "kernels/dispatch.h"

namespace lockstep {

// qk_norm_forward applies RMSNorm to each query and key head (Qwen 3). Over the K elements of a
// head, out = qkv * rstd * weight with rstd = 1 / sqrt(mean(qkv^2) + epsilon). Value heads are
// copied. If table and positions are given, it applies RoPE (rope.h) in the same pass, without
// rounding in between.
//   out, qkv [N, H + 2G, K] same type, fp32 or bf16; out may be qkv
//   rstd [N, H + G] fp32, kept for backward      q_weight, k_weight [K] type of qkv
//   table [P, K] fp32, positions [N] int32, or both absent; with them K is even
// Source: Dehghani et al. 2023, arXiv:2302.05442, in RMSNorm form as in Qwen 3.
struct QkNormForward {
  Tensor out, rstd;
  ConstTensor qkv, q_weight, k_weight;
  int heads = 0, kv_heads = 0;
  float epsilon = 1e-6f;
  ConstTensor table = {}, positions = {};
};
void qk_norm_forward(Stream& stream, const QkNormForward& args);

// qk_norm_backward replaces dqkv, the gradient of out, by the gradient of qkv, and adds the
// weights' gradients. d is the gradient of out, rotated back by RoPE's angles if there are a table
// and positions. With g = d * weight, a head's gradient is
// rstd * (g - qkv * rstd^2 * mean(g * qkv)). Its weight's gradient is d * qkv * rstd.
//   dqkv [N, H + 2G, K]      dq_weight, dk_weight [K] fp32      qkv: the input of forward
//   absmax [1] fp32, if given: set to max |dqkv| of all heads, ignoring NaNs
struct QkNormBackward {
  Tensor dqkv, dq_weight, dk_weight;
  ConstTensor qkv, rstd, q_weight, k_weight;
  int heads = 0, kv_heads = 0;
  ConstTensor table = {}, positions = {};
  Tensor absmax = {};
};
void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& args);

LOCKSTEP_KERNELS(  // arguments are already checked
    void qk_norm_forward(Stream& stream, const QkNormForward& args);
    void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& args);)

}  // namespace lockstep

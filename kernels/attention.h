#pragma once

#include "core/arena.h"
#include "core/op_log.h"
#include "kernels/dispatch.h"

namespace lockstep {

// Computes causal grouped-query attention, flash style: no T x T matrix is ever in memory.
//   out[t, h] = sum over j of p_tj v[j, h / (H/G)],   p_tj = exp(q[t, h] k[j, .] / sqrt(K) - lse)
// over document_start[t] <= j <= t within the sequence.
//   qkv [N, H + 2G, K]  fp32 or bf16: H query heads, G key heads, G value heads; N = B T
//   out [N, H, K] type of qkv       lse [B, H, T] fp32: log of the sum of exponents, for backward
//   document_start [B, T] int32: the first token (index in the sequence) that a token may attend
//   to, from 0 to T; absent: 0 for all
// A token whose document_start is after itself sees no key: its out is 0, its lse -infinity and its
// dq 0. It adds nothing to dk and dv.
//   absmax [1] fp32, if given: set to max |out|, ignoring NaNs
// Scores and sums are fp32. Source: Dao 2023, arXiv:2307.08691, algorithms 1 and 2.
void attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse, ConstTensor qkv,
                       ConstTensor document_start, Tensor absmax = {});

// Computes dqkv, the gradient of qkv for the gradient dout of out. p is recomputed from lse.
//   dqkv [N, H + 2G, K]     dout, out [N, H, K]
void attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                        ConstTensor out, ConstTensor lse, ConstTensor qkv,
                        ConstTensor document_start);

// KvCache holds the keys and values of one layer for the tokens that generation has processed.
struct KvCache {
  Tensor keys, values;  // [B, C, G, K]: C is the capacity in tokens
};

// Appends the keys and values of n new tokens per sequence to the cache, at `positions`. Then each
// new token attends to the cache up to its own position. This serves both prefill, n > 1, and
// decode, n = 1.
//   out [B n, H, K]      qkv [B n, H + 2G, K]      positions [B, n] int32, in [0, C)
void attention_cached(Stream& stream, Arena& scratch, Tensor out, const KvCache& cache,
                      ConstTensor qkv, ConstTensor positions);

// Returns the operator of `products` matmuls of [T, K] and [T, T] matrices for each head and
// sequence. Causality leaves T (T + 1) / 2 elements of a [T, T] matrix. Forward has 2 matmuls,
// backward 5 (scores are recomputed).
//   lse [B, H, T]
Op attention_op(const char* name, int products, ConstTensor lse, ConstTensor out,
                std::initializer_list<ConstTensor> tensors);

LOCKSTEP_KERNELS(  // arguments are already checked
    void attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse, ConstTensor qkv,
                           ConstTensor document_start, Tensor absmax);
    void attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                            ConstTensor out, ConstTensor lse, ConstTensor qkv,
                            ConstTensor document_start);
    void attention_cached(Stream& stream, Arena& scratch, Tensor out, const KvCache& cache,
                          ConstTensor qkv, ConstTensor positions);)

}  // namespace lockstep

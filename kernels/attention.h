#pragma once

#include "core/arena.h"
#include "core/op_log.h"
#include "kernels/dispatch.h"

namespace lockstep {

// Causal grouped-query attention, flash style: no T x T matrix is ever in memory.
//   out[t, h] = sum over j of p_tj v[j, h / (H/G)],   p_tj = exp(q[t, h] k[j, .] / sqrt(K) - lse)
// over document_start[t] <= j <= t within the sequence.
//   qkv [N, H + 2G, K]  fp32 or bf16: H query heads, G key heads, G value heads; N = B T
//   out [N, H, K] type of qkv       lse [B, H, T] fp32: log of the sum of exponents, for backward
//   document_start [B, T] int32: the first token (index in the sequence) that a token may attend
//   to, from 0 to T; absent: 0 for all
// A token whose document_start is after itself sees no key: its out is 0, its lse -infinity, its
// dq 0, and it adds nothing to dk and dv.
//   absmax [1] fp32, where given: set to max |out|, NaNs left out
// Scores and sums are fp32. Source: Dao 2023, arXiv:2307.08691, algorithms 1 and 2.
void attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse, ConstTensor qkv,
                       ConstTensor document_start, Tensor absmax = {});

// dqkv = gradient of qkv for the gradient dout of out; p is computed again from lse.
//   dqkv [N, H + 2G, K]     dout, out [N, H, K]
void attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                        ConstTensor out, ConstTensor lse, ConstTensor qkv,
                        ConstTensor document_start);

// The keys and values that generation has seen, of one layer.
struct KvCache {
  Tensor keys, values;  // [B, C, G, K]: C the capacity in tokens
};

// Appends the keys and values of n new tokens a sequence to the cache, at `positions`, then attends
// from each new token to everything in the cache up to its own position: prefill (n > 1) and decode
// (n = 1) alike.
//   out [B n, H, K]      qkv [B n, H + 2G, K]      positions [B, n] int32, in [0, C)
void attention_cached(Stream& stream, Arena& scratch, Tensor out, const KvCache& cache,
                      ConstTensor qkv, ConstTensor positions);

// What `products` products of [T, K] and [T, T] matrices are for each head and sequence, of which
// causality leaves T (T + 1) / 2 elements: 2 forward, 5 backward (scores are computed again).
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

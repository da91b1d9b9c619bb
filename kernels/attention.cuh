// This file declares the arguments and launchers that the CUDA kernels of attention share.
#pragma once

#include <algorithm>

#include "core/arena.h"
#include "kernels/attention.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"

namespace lockstep {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// AttentionForward holds the arguments of forward: queries, keys and values. Pointers are to token
// 0, head 0; strides are in elements, from token to token.
template <class E>
struct AttentionForward {
  const E *q, *k, *v;
  E* out;                            // [B queries, H, K]
  float* lse;                        // [B, H, queries], or nullptr
  float* absmax;                     // [1]: raised to max |out|, or nullptr
  const std::int32_t *first, *last;  // [B, queries]: the keys that a query sees; nullptr: from 0
                                     // on, or up to its own index
  std::int64_t q_stride, kv_stride;
  int B, H, G, K, queries, keys;  // queries, keys: of a sequence
  float scale;                    // of scores, as exponents of 2

  __device__ std::int64_t query_at(int b, int query, int head) const {
    return (static_cast<std::int64_t>(b) * queries + query) * q_stride +
           static_cast<std::int64_t>(head) * K;
  }
  __device__ std::int64_t key_at(int b, int key, int kv_head) const {
    return (static_cast<std::int64_t>(b) * keys + key) * kv_stride +
           static_cast<std::int64_t>(kv_head) * K;
  }
  __device__ std::int64_t out_at(int b, int query, int head) const {
    return ((static_cast<std::int64_t>(b) * queries + query) * H + head) * K;
  }
  __device__ std::int64_t lse_at(int b, int query, int head) const {
    return (static_cast<std::int64_t>(b) * H + head) * queries + query;
  }
  __device__ int first_key(int b, int query) const {
    return first == nullptr ? 0 : first[static_cast<std::int64_t>(b) * queries + query];
  }
  __device__ int last_key(int b, int query) const {
    return last == nullptr ? query : last[static_cast<std::int64_t>(b) * queries + query];
  }
};

// RowStatistics holds, for one head of a query, lse as an exponent of 2 and
// delta = the sum of dout out.
struct alignas(8) RowStatistics {
  float lse, delta;
};

// AttentionBackward holds the arguments of backward, with pointers and strides as above. Gradients
// have the layout of their tensors; q, k and v are in one tensor.
template <class E>
struct AttentionBackward {
  const E *q, *k, *v, *dout;
  E *dq, *dk, *dv;
  const RowStatistics* rows;           // [B, H, T]
  const std::int32_t* document_start;  // [B, T], or nullptr
  std::int64_t stride;                 // of q, k, v, dq, dk and dv
  int B, H, G, K, T;
  float scale;         // of q k, in gradients
  float scale_base_2;  // of scores, as exponents of 2

  __device__ std::int64_t token_at(int b, int token) const {
    return static_cast<std::int64_t>(b) * T + token;
  }
  __device__ std::int64_t at(int b, int token, int head) const {
    return token_at(b, token) * stride + static_cast<std::int64_t>(head) * K;
  }
  __device__ std::int64_t dout_at(int b, int token, int head) const {
    return (token_at(b, token) * H + head) * K;
  }
  __device__ const RowStatistics* rows_at(int b, int token, int head) const {
    return rows + (static_cast<std::int64_t>(b) * H + head) * T + token;
  }
  __device__ int first_key(int b, int token) const {
    return document_start == nullptr ? 0 : document_start[token_at(b, token)];
  }
};

// plain_forward and plain_backward take any head size up to kMostHeadSize, in fp32 and bf16. They
// are in attention_plain.cu.
inline constexpr std::int64_t kMostHeadSize = 256;
inline void check_head_size(std::int64_t K) {
  LOCKSTEP_CHECK(K <= kMostHeadSize, "heads of ", K, " elements; a GPU takes ", kMostHeadSize,
                 " at most");
}
template <class E>
void plain_forward(Stream& stream, const AttentionForward<E>& a);
template <class E>
void plain_backward(Stream& stream, const AttentionBackward<E>& a);

// flash_forward and flash_backward use tensor cores. They take bf16 and head sizes 64 and 128, with
// rows at multiples of 16 bytes. They are in attention_flash.cu and attention_flash_backward.cu.
// Backward of heads of 128 takes 113 KiB of shared memory per block, which some GPUs do not have.
void flash_forward(Stream& stream, const AttentionForward<BFloat16>& a);
bool has_flash_backward(const Stream& stream, std::int64_t K);
void flash_backward(Stream& stream, Tensor ranges, const AttentionBackward<BFloat16>& a);

// KeyRange holds the least and the greatest document_start of a block of queries. `ranges` has one
// for each block.
struct KeyRange {
  std::int32_t first, last;
};
Shape key_ranges(std::int64_t B, std::int64_t T);

// append_to_cache and decode attend from few new tokens to a cache. They are in
// attention_decode.cu.
template <class E>
void append_to_cache(Stream& stream, const KvCache& cache, ConstTensor qkv, ConstTensor positions);
template <class E>
void decode(Stream& stream, Tensor partials, const AttentionForward<E>& a);
// Returns the number of floats of `partials` for B n query tokens of H heads and a cache of C
// tokens.
std::int64_t decode_partials(std::int64_t tokens, std::int64_t H, std::int64_t K, std::int64_t C);

}  // namespace lockstep

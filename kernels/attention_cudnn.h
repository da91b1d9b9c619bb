// Causal attention by cuDNN's fused kernels, for bf16 and whole sequences: the fastest there are,
// where this build and machine have them. Otherwise, and for documents, see attention.h.
#pragma once

#include <string>

#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

// B sequences of T tokens; H query heads and G key/value heads of K elements.
struct AttentionSizes {
  std::int64_t B, T, H, G, K;
  auto operator<=>(const AttentionSizes&) const = default;
};

// Why no cuDNN is asked for these sizes, or nothing.
std::string why_not_for_cudnn(const AttentionSizes& sizes);

// Has cuDNN build, once, what it needs for these sizes on `stream`, so that no step does. Returns
// why they cannot be computed in this build, on this machine and GPU, or nothing.
std::string prepare_cudnn_attention(Stream& stream, const AttentionSizes& sizes);

// As attention_forward without document_start.
//   out [N, H, K] bf16      lse [B, H, T] fp32      qkv [N, H + 2G, K] bf16
// Throws Error where prepare_cudnn_attention says why not.
void cudnn_attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse,
                             ConstTensor qkv);

// cuDNN's backward sums in a fixed order only where the gradients of all scores, B H T^2, are in
// memory. So it is given chunks of the batch that need `chunk_bytes` at most: some of the
// sequences, or some kv heads of one sequence with their queries, one at least. The most is what
// one kv head of 4 query heads needs at T = 16384 (2 GiB of scores), rounded up.
inline constexpr std::int64_t kCudnnChunkBytes = std::int64_t{2304} << 20;
AttentionSizes cudnn_backward_chunk(const AttentionSizes& sizes,
                                    std::int64_t chunk_bytes = kCudnnChunkBytes);

// As attention_backward.
//   dqkv [N, H + 2G, K] bf16      dout, out [N, H, K] bf16
void cudnn_attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                              ConstTensor out, ConstTensor lse, ConstTensor qkv,
                              std::int64_t chunk_bytes = kCudnnChunkBytes);

// What they take from scratch, backward for each chunk. cuDNN is held to it when a plan is built,
// so it is known without a GPU and without the library.
std::int64_t cudnn_backward_bytes(const AttentionSizes& chunk);
inline constexpr std::int64_t kCudnnForwardBytes = 4096;  // 9.19 takes 256

std::string cudnn_version();  // "9.19.0"; empty where prepare_cudnn_attention says why not

}  // namespace lockstep

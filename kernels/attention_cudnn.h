// This file declares causal attention with cuDNN's fused kernels, for bf16 and whole sequences.
// They are the fastest if this build and machine have cuDNN. Otherwise, and for documents,
// attention.h is used.
#pragma once

#include <string>

#include "core/arena.h"
#include "core/stream.h"

namespace lockstep {

// AttentionSizes describes B sequences of T tokens, with H query heads and G key/value heads of K
// elements.
struct AttentionSizes {
  std::int64_t B, T, H, G, K;
  auto operator<=>(const AttentionSizes&) const = default;
};

// Returns why cuDNN is not used for these sizes, or an empty string.
std::string why_not_for_cudnn(const AttentionSizes& sizes);

// Builds cuDNN's plans for these sizes on `stream`, once, so that no step has to. Returns why these
// sizes cannot be computed in this build, on this machine and GPU, or an empty string.
std::string prepare_cudnn_attention(Stream& stream, const AttentionSizes& sizes);

// Computes attention_forward without document_start.
//   out [N, H, K] bf16      lse [B, H, T] fp32      qkv [N, H + 2G, K] bf16
// Throws Error if prepare_cudnn_attention returns a reason.
void cudnn_attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse,
                             ConstTensor qkv);

// Returns the chunk of a batch that cuDNN's backward computes at once. cuDNN's backward sums in a
// fixed order only if the gradients of all scores, B H T^2, are in memory. A chunk is some of the
// sequences, or some kv heads of one sequence with their queries. It needs at most `chunk_bytes`,
// unless it is a single kv head. kCudnnChunkBytes is what one kv head with 4 query heads needs at
// T = 16384 (2 GiB of scores), rounded up.
inline constexpr std::int64_t kCudnnChunkBytes = std::int64_t{2304} << 20;
AttentionSizes cudnn_backward_chunk(const AttentionSizes& sizes,
                                    std::int64_t chunk_bytes = kCudnnChunkBytes);

// Computes attention_backward without document_start.
//   dqkv [N, H + 2G, K] bf16      dout, out [N, H, K] bf16
void cudnn_attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                              ConstTensor out, ConstTensor lse, ConstTensor qkv,
                              std::int64_t chunk_bytes = kCudnnChunkBytes);

// Bytes that forward, and backward for each chunk, take from scratch. Building a plan fails if
// cuDNN needs more, so the size is known without a GPU and without the library.
std::int64_t cudnn_backward_bytes(const AttentionSizes& chunk);
inline constexpr std::int64_t kCudnnForwardBytes = 4096;  // cuDNN 9.19 takes 256

std::string cudnn_version();  // "9.19.0"; empty if why_no_cudnn() returns a reason

}  // namespace lockstep

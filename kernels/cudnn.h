// This file wraps the part of cuDNN that attention_cudnn.cpp needs. It is implemented in cudnn.cpp
// if a build has the headers of cuDNN and its frontend, else in cudnn_none.cpp. The library is
// loaded at its first use, so that a program starts without it.
#pragma once

#include <memory>
#include <string>

#include "kernels/attention_cudnn.h"

namespace lockstep {

// Returns why cuDNN cannot be used in this build or on this machine, or an empty string.
std::string why_no_cudnn();

// CudnnGraph describes attention over a part of a batch, forward or backward. Elements of a head
// are contiguous, and so are heads. The strides are from token to token; sequences follow each
// other.
struct CudnnGraph {
  AttentionSizes sizes;
  std::int64_t qkv_stride, out_stride;
  bool is_backward;
  std::int64_t most_bytes;  // limit of the workspace
  auto operator<=>(const CudnnGraph&) const = default;
};

// Returns the graph of a chunk of a batch of `whole` sizes. The chunk of forward is the whole
// batch.
CudnnGraph cudnn_graph(const AttentionSizes& whole, const AttentionSizes& chunk, bool is_backward);

// CudnnTensors points to the first token and head of the part in each tensor. Forward writes out
// and lse, and backward reads them. lse [B, H, T] has only the part's heads, without gaps.
struct CudnnTensors {
  const BFloat16 *q, *k, *v;
  BFloat16* out;
  float* lse;
  const BFloat16* dout = nullptr;
  BFloat16 *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

// Cudnn keeps cuDNN's state for a stream: its handle, and a plan for each graph.
class Cudnn final : public Stream::Kept {
 public:
  Cudnn();
  ~Cudnn() override;

  // Builds the plan if it is not built yet. Returns why there is none, or an empty string.
  std::string prepare(Stream& stream, const CudnnGraph& graph);
  // Enqueues the graph, after building its plan if it was not prepared.
  //   workspace [graph.most_bytes]
  void run(Stream& stream, const CudnnGraph& graph, const CudnnTensors& tensors, Tensor workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns why cuDNN has no kernels of this graph for the GPU that `device_properties` describes, or
// an empty string. It needs no GPU, because it only chooses kernels and builds none.
//   device_properties: JSON, as cuDNN writes it      capability: 10 times the compute capability
std::string why_no_cudnn_kernels(const CudnnGraph& graph, const std::string& device_properties,
                                 int capability);

}  // namespace lockstep

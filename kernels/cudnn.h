// cuDNN, as far as attention_cudnn.cpp needs it: in cudnn.cpp, where a build has its headers and
// those of its frontend, else in cudnn_none.cpp. The library is loaded when it is first asked for,
// so that a program starts without it.
#pragma once

#include <memory>
#include <string>

#include "kernels/attention_cudnn.h"

namespace lockstep {

// Why cuDNN cannot be used in this build or on this machine, or nothing.
std::string why_no_cudnn();

// Attention over a part of a batch, forward or backward. Elements of a head lie back to back, so do
// heads; from token to token the strides are these, and sequences follow each other.
struct CudnnGraph {
  AttentionSizes sizes;
  std::int64_t qkv_stride, out_stride;
  bool is_backward;
  std::int64_t most_bytes;  // of workspace
  auto operator<=>(const CudnnGraph&) const = default;
};

// A chunk of a batch of `whole` sizes; forward is given the whole.
CudnnGraph cudnn_graph(const AttentionSizes& whole, const AttentionSizes& chunk, bool is_backward);

// Each of the first token and head of the part. out and lse [B, H, T] (of the part's own heads,
// back to back) are written by forward, read by backward.
struct CudnnTensors {
  const BFloat16 *q, *k, *v;
  BFloat16* out;
  float* lse;
  const BFloat16* dout = nullptr;
  BFloat16 *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

// What cuDNN keeps for a stream: its handle, and a plan for each graph.
class Cudnn final : public Stream::Kept {
 public:
  Cudnn();
  ~Cudnn() override;

  // Builds the plan, where it is not built yet. Returns why there is none, or nothing.
  std::string prepare(Stream& stream, const CudnnGraph& graph);
  // Enqueues what the graph computes; builds its plan where it was not prepared.
  //   workspace [graph.most_bytes]
  void run(Stream& stream, const CudnnGraph& graph, const CudnnTensors& tensors, Tensor workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Without a GPU: why cuDNN has no kernels of this graph for the GPU that `device_properties` (JSON,
// as cuDNN writes it) describes, of compute capability `capability` / 10, or nothing. It gets as
// far as choosing kernels, and builds none.
std::string why_no_cudnn_kernels(const CudnnGraph& graph, const std::string& device_properties,
                                 int capability);

}  // namespace lockstep

// This file builds cuDNN's graphs of attention through its frontend. cuDNN matches its kernels to
// the whole graph, so strides and types describe memory exactly. Before cuDNN 9.26 the log-sum-exp
// of backward must be [B, H, T] without gaps. The graph, the GPU and the version determine the
// kernels: the first that cuDNN's heuristics propose and that fit in the workspace.
#include "kernels/cudnn.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <vector>

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the library in which the frontend finds functions
}

namespace lockstep {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using TensorOfGraph = std::shared_ptr<fe::graph::Tensor_attributes>;
using Dimensions = std::vector<std::int64_t>;

// Before 9.16, lengths that are not a multiple of 128 cost a copy from the host at each call.
// Before 9.18, backward on Hopper read workspace that it had not written (TransformerEngine, issue
// 2186).
constexpr std::size_t kOldest = 91800;

std::string dotted(std::size_t version) {
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// Loads the library. Returns why it cannot be used, or an empty string.
std::string load() {
  // Otherwise the frontend takes the first CUDA runtime that it finds, even if another one is
  // linked.
  const auto runtime = str("libcudart.so.", CUDART_VERSION / 1000);
  setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.c_str(), 0);
  fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (fe::cudnn_dlhandle == nullptr) {
    const char* error = dlerror();
    return str("there is no cuDNN 9 (", error, "); install it, or name its directory in ",
               "LD_LIBRARY_PATH");
  }
  const auto version = fe::detail::get_backend_version();
  if (version < kOldest)
    return str("cuDNN ", dotted(version), " is too old; install ", dotted(kOldest), " or later");
  return {};
}

enum Name : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// Layout is that of [B, heads, T, K], a part of [N, ., K] whose tokens are `stride` elements apart.
struct Layout {
  Dimensions dimensions, strides;
};
Layout layout(const AttentionSizes& s, std::int64_t heads, std::int64_t stride) {
  return {{s.B, heads, s.T, s.K}, {s.T * stride, s.K, stride, 1}};
}
Layout layout_of_lse(const AttentionSizes& s) {
  return {{s.B, s.H, s.T, 1}, {s.H * s.T, s.T, 1, 1}};
}

TensorOfGraph input(Graph& graph, Name name, const Layout& layout,
                    fe::DataType_t type = fe::DataType_t::BFLOAT16) {
  return graph.tensor(fe::graph::Tensor_attributes()
                          .set_uid(name)
                          .set_dim(layout.dimensions)
                          .set_stride(layout.strides)
                          .set_data_type(type));
}
void output(const TensorOfGraph& tensor, Name name, const Layout& layout,
            fe::DataType_t type = fe::DataType_t::BFLOAT16) {
  tensor->set_output(true)
      .set_uid(name)
      .set_dim(layout.dimensions)
      .set_stride(layout.strides)
      .set_data_type(type);
}

// Describes the graph to cuDNN for a GPU of compute capability `capability` / 10; 0: the GPU in
// use.
std::unique_ptr<Graph> describe(const CudnnGraph& g, int capability) {
  const auto& s = g.sizes;
  const auto queries = layout(s, s.H, g.qkv_stride), keys = layout(s, s.G, g.qkv_stride);
  const auto outputs = layout(s, s.H, g.out_stride), lse = layout_of_lse(s);
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.K));
  auto graph = std::make_unique<Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (capability > 0) graph->set_sm_version(capability);
  const auto q = input(*graph, kQ, queries), k = input(*graph, kK, keys),
             v = input(*graph, kV, keys);
  if (!g.is_backward) {
    const auto [out, stats] = graph->sdpa(q, k, v,
                                          fe::graph::SDPA_attributes()
                                              .set_name("forward")
                                              .set_generate_stats(true)
                                              .set_causal_mask(true)
                                              .set_attn_scale(scale));
    output(out, kOut, outputs);
    output(stats, kLse, lse, fe::DataType_t::FLOAT);
    return graph;
  }
  const auto out = input(*graph, kOut, outputs), dout = input(*graph, kDout, outputs);
  const auto stats = input(*graph, kLse, lse, fe::DataType_t::FLOAT);
  const auto [dq, dk, dv] = graph->sdpa_backward(q, k, v, out, dout, stats,
                                                 fe::graph::SDPA_backward_attributes()
                                                     .set_name("backward")
                                                     .set_causal_mask(true)
                                                     .set_deterministic_algorithm(true)
                                                     .set_attn_scale(scale));
  output(dq, kDq, queries);
  output(dk, kDk, keys);
  output(dv, kDv, keys);
  return graph;
}

// Performs the steps up to the choice of kernels. `handle` is null if device properties replace the
// GPU.
fe::error_t choose_kernels(Graph& graph, const CudnnGraph& g, cudnnHandle_t handle) {
  if (auto e = graph.validate(); e.is_bad()) return e;
  if (auto e = graph.build_operation_graph(handle); e.is_bad()) return e;
  if (auto e = graph.create_execution_plans({fe::HeurMode_t::A}); e.is_bad()) return e;
  graph.deselect_workspace_greater_than(g.most_bytes);
  return graph.check_support();
}

std::string refusal(const CudnnGraph& g, const std::string& why,
                    const char* what = "has no plan for") {
  const auto& s = g.sizes;
  return str("cuDNN ", cudnn_version(), " ", what, " attention ",
             g.is_backward ? "backward" : "forward", " with B ", s.B, ", T ", s.T, ", H ", s.H,
             ", G ", s.G, ", K ", s.K, ": ", why);
}

}  // namespace

std::string why_no_cudnn() {
  static const std::string why_not = load();
  return why_not;
}

std::string cudnn_version() {
  return why_no_cudnn().empty() ? dotted(fe::detail::get_backend_version()) : "";
}

struct Cudnn::State {
  cudnnHandle_t handle = nullptr;
  std::map<CudnnGraph, std::unique_ptr<Graph>> plans;

  std::string begin(Stream& stream);
};

// Creates the handle. Returns why it cannot be created, or an empty string.
std::string Cudnn::State::begin(Stream& stream) {
  if (auto why_not = why_no_cudnn(); handle != nullptr || !why_not.empty()) return why_not;
  auto status = fe::detail::create_handle(&handle);
  if (status == CUDNN_STATUS_SUCCESS) status = fe::detail::set_stream(handle, stream.native());
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return str("cuDNN does not start: ", fe::detail::get_error_string(status));
}

Cudnn::Cudnn() : state_(std::make_unique<State>()) {}

Cudnn::~Cudnn() {
  state_->plans.clear();
  if (state_->handle != nullptr) fe::detail::destroy_handle(state_->handle);
}

std::string Cudnn::prepare(Stream& stream, const CudnnGraph& g) {
  if (state_->plans.contains(g)) return {};
  if (auto why_not = state_->begin(stream); !why_not.empty()) return why_not;
  auto graph = describe(g, 0);
  if (auto e = choose_kernels(*graph, g, state_->handle); e.is_bad())
    return refusal(g, e.get_message());
  if (auto e = graph->build_plans(); e.is_bad()) return refusal(g, e.get_message());
  std::int64_t bytes = 0;
  if (auto e = graph->get_workspace_size(bytes); e.is_bad()) return refusal(g, e.get_message());
  if (bytes > g.most_bytes)
    return refusal(g, str("it takes a workspace of ", bytes, " bytes, expected ", g.most_bytes));
  state_->plans.emplace(g, std::move(graph));
  return {};
}

void Cudnn::run(Stream& stream, const CudnnGraph& g, const CudnnTensors& t, Tensor workspace) {
  LOCKSTEP_CHECK(workspace.bytes() >= g.most_bytes, "a workspace of ", workspace.bytes(),
                 " bytes, expected ", g.most_bytes);
  const auto why_not = prepare(stream, g);
  LOCKSTEP_CHECK(why_not.empty(), why_not);
  const auto memory = [](const BFloat16* p) { return const_cast<BFloat16*>(p); };
  std::unordered_map<std::int64_t, void*> tensors{
      {kQ, memory(t.q)}, {kK, memory(t.k)}, {kV, memory(t.v)}, {kOut, t.out}, {kLse, t.lse}};
  if (g.is_backward)
    tensors.insert({{kDout, memory(t.dout)}, {kDq, t.dq}, {kDk, t.dk}, {kDv, t.dv}});
  auto e = state_->plans.at(g)->execute(state_->handle, tensors, workspace.data);
  LOCKSTEP_CHECK(e.is_good(), refusal(g, e.get_message(), "failed at"));
}

std::string why_no_cudnn_kernels(const CudnnGraph& g, const std::string& device_properties,
                                 int capability) {
  if (auto why_not = why_no_cudnn(); !why_not.empty()) return why_not;
  auto gpu = std::make_shared<fe::DeviceProperties>();
  if (auto e = gpu->deserialize({device_properties.begin(), device_properties.end()}); e.is_bad())
    return str("device properties that cuDNN cannot read: ", e.get_message());
  auto graph = describe(g, capability);
  graph->set_device_properties(gpu);
  auto e = choose_kernels(*graph, g, nullptr);
  return e.is_good() ? "" : refusal(g, e.get_message());
}

}  // namespace lockstep

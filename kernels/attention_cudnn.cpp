#include "kernels/attention_cudnn.h"

#include "core/integer.h"
#include "core/units.h"
#include "kernels/attention.h"
#include "kernels/check.h"
#include "kernels/cudnn.h"

namespace lockstep {
namespace {

AttentionSizes checked_sizes(const Stream& stream, ConstTensor out, ConstTensor lse,
                             ConstTensor qkv) {
  LOCKSTEP_CHECK(stream.is_cuda(), "cuDNN computes on GPUs only");
  LOCKSTEP_CHECK(out.shape.rank == 3 && lse.shape.rank == 3 && qkv.shape.rank == 3, "out is ",
                 out.shape, ", lse ", lse.shape, ", qkv ", qkv.shape,
                 ", expected [N, H, K], [B, H, T] and [N, H + 2G, K]");
  const AttentionSizes s{.B = lse.shape[0],
                         .T = lse.shape[2],
                         .H = out.shape[1],
                         .G = (qkv.shape[1] - out.shape[1]) / 2,
                         .K = out.shape[2]};
  LOCKSTEP_CHECK(s.G > 0 && s.H % s.G == 0, "qkv is ", qkv.shape, " and out ", out.shape,
                 ", expected kv heads that divide the query heads");
  check_tensor("out", out, {s.B * s.T, s.H, s.K}, DType::bf16);
  check_tensor("lse", lse, {s.B, s.H, s.T}, DType::fp32);
  check_tensor("qkv", qkv, {s.B * s.T, s.H + 2 * s.G, s.K}, DType::bf16);
  return s;
}

}  // namespace

CudnnGraph cudnn_graph(const AttentionSizes& whole, const AttentionSizes& chunk, bool is_backward) {
  return {.sizes = chunk,
          .qkv_stride = (whole.H + 2 * whole.G) * whole.K,
          .out_stride = whole.H * whole.K,
          .is_backward = is_backward,
          .most_bytes = is_backward ? cudnn_backward_bytes(chunk) : kCudnnForwardBytes};
}

std::int64_t cudnn_backward_bytes(const AttentionSizes& s) {
  const auto T = round_up(s.T, 128);
  const auto scores = 2 * s.B * s.H * T * T;
  const auto dk_dv = s.H > s.G ? 4 * s.B * s.H * s.T * s.K : 0;  // per query head
  const auto delta = 4 * s.B * s.H * s.T;
  return scores + dk_dv + delta + 4096;  // cuDNN 9.19 takes 256 of these bytes
}

AttentionSizes cudnn_backward_chunk(const AttentionSizes& sizes, std::int64_t chunk_bytes) {
  AttentionSizes chunk = sizes;
  const auto is_small = [&] { return cudnn_backward_bytes(chunk) <= chunk_bytes; };
  for (; chunk.B > 1; --chunk.B)
    if (sizes.B % chunk.B == 0 && is_small()) return chunk;
  for (; chunk.G > 1; --chunk.G) {
    chunk.H = chunk.G * (sizes.H / sizes.G);
    if (sizes.G % chunk.G == 0 && is_small()) return chunk;
  }
  chunk.H = sizes.H / sizes.G;
  return chunk;
}

std::string why_not_for_cudnn(const AttentionSizes& sizes) {
  if (sizes.K != 64 && sizes.K != 128)
    return str("its heads have ", sizes.K, " elements, not 64 or 128");
  if (const auto bytes = cudnn_backward_bytes(cudnn_backward_chunk(sizes));
      bytes > kCudnnChunkBytes)
    return str("the backward pass of one kv head over ", sizes.T, " tokens needs ",
               human_memory(static_cast<double>(bytes)), " of workspace");
  return {};
}

std::string prepare_cudnn_attention(Stream& stream, const AttentionSizes& sizes) {
  if (auto why_not = why_not_for_cudnn(sizes); !why_not.empty()) return why_not;
  const auto chunk = cudnn_backward_chunk(sizes);
  if (auto why_not = why_no_cudnn(); !why_not.empty()) return why_not;
  auto& cudnn = stream.kept<Cudnn>();
  if (auto why_not = cudnn.prepare(stream, cudnn_graph(sizes, sizes, false)); !why_not.empty())
    return why_not;
  return cudnn.prepare(stream, cudnn_graph(sizes, chunk, true));
}

void cudnn_attention_forward(Stream& stream, Arena& scratch, Tensor out, Tensor lse,
                             ConstTensor qkv) {
  const auto s = checked_sizes(stream, out, lse, qkv);
  const OpLog::Call call(stream,
                         attention_op("cudnn_attention_forward", 2, lse, out, {qkv, out, lse}));
  const Arena::Scope scope(scratch);
  const auto workspace = scratch.allocate("cudnn_workspace", DType::uint8, {kCudnnForwardBytes});
  if (stream.is_measuring()) return;
  const auto* q = qkv.as<BFloat16>();
  stream.kept<Cudnn>().run(stream, cudnn_graph(s, s, false),
                           {.q = q,
                            .k = q + s.H * s.K,
                            .v = q + (s.H + s.G) * s.K,
                            .out = out.as<BFloat16>(),
                            .lse = lse.as<float>()},
                           workspace);
}

void cudnn_attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                              ConstTensor out, ConstTensor lse, ConstTensor qkv,
                              std::int64_t chunk_bytes) {
  const auto s = checked_sizes(stream, out, lse, qkv);
  check_tensor("dout", dout, out.shape, DType::bf16);
  check_tensor("dqkv", dqkv, qkv.shape, DType::bf16);
  const OpLog::Call call(
      stream, attention_op("cudnn_attention_backward", 5, lse, out, {qkv, dqkv, out, dout, lse}));
  const auto chunk = cudnn_backward_chunk(s, chunk_bytes);
  const auto graph = cudnn_graph(s, chunk, true);
  const Arena::Scope scope(scratch);
  const auto workspace = scratch.allocate("cudnn_workspace", DType::uint8, {graph.most_bytes});
  if (stream.is_measuring()) return;
  auto& cudnn = stream.kept<Cudnn>();
  for (std::int64_t b = 0; b < s.B; b += chunk.B)
    for (std::int64_t g = 0; g < s.G; g += chunk.G) {
      const auto head = g * (s.H / s.G);
      const auto q = b * s.T * graph.qkv_stride + head * s.K;
      const auto k = b * s.T * graph.qkv_stride + (s.H + g) * s.K, v = k + s.G * s.K;
      const auto o = b * s.T * graph.out_stride + head * s.K;
      const auto* from = qkv.as<BFloat16>();
      auto* to = dqkv.as<BFloat16>();
      cudnn.run(stream, graph,
                {.q = from + q,
                 .k = from + k,
                 .v = from + v,
                 .out = const_cast<BFloat16*>(out.as<BFloat16>()) + o,
                 .lse = const_cast<float*>(lse.as<float>()) + (b * s.H + head) * s.T,
                 .dout = dout.as<BFloat16>() + o,
                 .dq = to + q,
                 .dk = to + k,
                 .dv = to + v},
                workspace);
    }
}

}  // namespace lockstep

// cuDNN of tests/simt computes attention by its definition. One thread loops over queries and keys
// with the addresses from attention_cudnn.cpp, so the simulator checks its reads and writes.
#include "kernels/cudnn.h"

#include <cmath>
#include <vector>

#include "tests/simt/simt.h"

namespace lockstep {
namespace {

float get(const BFloat16* p) {
  simt::read(p, sizeof *p);
  return to_float(*p);
}
void put(BFloat16* p, double value) {
  simt::write(p, sizeof *p);
  *p = to_bf16(static_cast<float>(value));
}

// One head over one sequence; tensors begin at its first token.
struct Head {
  const CudnnGraph& g;
  CudnnTensors t;

  double dot(const BFloat16* a, const BFloat16* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < g.sizes.K; ++i)
      sum += get(a + i) * get(b + i);
    return sum;
  }
  double score(std::int64_t query, std::int64_t key) const {
    return dot(t.q + query * g.qkv_stride, t.k + key * g.qkv_stride) /
           std::sqrt(static_cast<double>(g.sizes.K));
  }
  void forward() const {
    for (std::int64_t i = 0; i < g.sizes.T; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j <= i; ++j)
        sum += std::exp(score(i, j));
      simt::write(t.lse + i, sizeof(float));
      t.lse[i] = static_cast<float>(std::log(sum));
      std::vector<double> out(static_cast<std::size_t>(g.sizes.K));
      for (std::int64_t j = 0; j <= i; ++j) {
        const double p = std::exp(score(i, j)) / sum;
        for (std::size_t n = 0; n < out.size(); ++n)
          out[n] += p * get(t.v + j * g.qkv_stride + n);
      }
      for (std::size_t n = 0; n < out.size(); ++n)
        put(t.out + i * g.out_stride + n, out[n]);
    }
  }
  // Adds to dk and dv [T, K], which the query heads of a kv head share.
  void backward(std::vector<double>& dk, std::vector<double>& dv) const {
    const auto K = static_cast<std::size_t>(g.sizes.K);
    for (std::int64_t i = 0; i < g.sizes.T; ++i) {
      const auto* dout = t.dout + i * g.out_stride;
      const double delta = dot(dout, t.out + i * g.out_stride);
      std::vector<double> dq(K);
      simt::read(t.lse + i, sizeof(float));
      for (std::int64_t j = 0; j <= i; ++j) {
        const double p = std::exp(score(i, j) - t.lse[i]);
        const double ds = p * (dot(dout, t.v + j * g.qkv_stride) - delta) / std::sqrt(double(K));
        const auto at = static_cast<std::size_t>(j) * K;
        for (std::size_t n = 0; n < K; ++n) {
          dv[at + n] += p * get(dout + n);
          dk[at + n] += ds * get(t.q + i * g.qkv_stride + n);
          dq[n] += ds * get(t.k + j * g.qkv_stride + n);
        }
      }
      for (std::size_t n = 0; n < K; ++n)
        put(t.dq + i * g.qkv_stride + n, dq[n]);
    }
  }
};

void compute(const CudnnGraph& g, const CudnnTensors& t) {
  const auto& s = g.sizes;
  for (std::int64_t kv = 0; kv < s.B * s.G; ++kv) {
    const auto b = kv / s.G, group = kv % s.G, heads = s.H / s.G;
    const auto key = b * s.T * g.qkv_stride + group * s.K;
    std::vector<double> dk(static_cast<std::size_t>(s.T * s.K)), dv(dk);
    for (std::int64_t h = group * heads; h < (group + 1) * heads; ++h) {
      const auto query = b * s.T * g.qkv_stride + h * s.K, out = b * s.T * g.out_stride + h * s.K;
      const Head head{g,
                      {.q = t.q + query,
                       .k = t.k + key,
                       .v = t.v + key,
                       .out = t.out + out,
                       .lse = t.lse + (b * s.H + h) * s.T,
                       .dout = g.is_backward ? t.dout + out : nullptr,
                       .dq = g.is_backward ? t.dq + query : nullptr}};
      if (g.is_backward)
        head.backward(dk, dv);
      else
        head.forward();
    }
    if (!g.is_backward) continue;
    for (std::int64_t j = 0; j < s.T; ++j)
      for (std::int64_t n = 0; n < s.K; ++n) {
        put(t.dk + key + j * g.qkv_stride + n, dk[static_cast<std::size_t>(j * s.K + n)]);
        put(t.dv + key + j * g.qkv_stride + n, dv[static_cast<std::size_t>(j * s.K + n)]);
      }
  }
}

}  // namespace

std::string why_no_cudnn() {
  return {};
}
std::string cudnn_version() {
  return "simulated";
}

struct Cudnn::State {};
Cudnn::Cudnn() = default;
Cudnn::~Cudnn() = default;
std::string Cudnn::prepare(Stream& /*stream*/, const CudnnGraph& /*graph*/) {
  return {};
}
void Cudnn::run(Stream& stream, const CudnnGraph& graph, const CudnnTensors& tensors,
                Tensor workspace) {
  simt::submit(stream.native(), [graph, tensors, workspace] {
    simt::launch({1}, {1}, 0, [&] {
      simt::write(workspace.data, static_cast<std::size_t>(graph.most_bytes));
      compute(graph, tensors);
    });
  });
}

std::string why_no_cudnn_kernels(const CudnnGraph& /*graph*/,
                                 const std::string& /*device_properties*/, int /*capability*/) {
  return {};
}

}  // namespace lockstep

// As rmsnorm.cu: a row stays in registers between its two sums and its output; backward sums weight
// gradients a block, then over blocks in order.
#include "kernels/elementwise.h"
#include "kernels/layernorm.h"
#include "kernels/rows.cuh"

namespace lockstep::cuda {
namespace {

template <class T>
struct Forward {
  T *y, *sum;
  float* stats;
  const T *x, *residual, *weight, *bias;
  float* absmax;  // or nullptr
  float epsilon;
  std::int64_t N;
  int D;
};

template <class T, int kPacks, int kWidth>
__global__ void __launch_bounds__(kRowThreads<kPacks>) layernorm_forward_kernel(Forward<T> a) {
  __shared__ float shared[kMostRows][32];
  const auto row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool valid = row < a.N;
  const int D = valid ? a.D : 0;
  const std::int64_t begin = row * a.D;
  float v[kPacks][kWidth];
  float total[1] = {0.0f};
  for_packs<kPacks, kWidth>(D, [&](int p, int d) {
    load(v[p], a.x + begin + d);
    if (a.residual != nullptr) {
      add_rounded(v[p], a.residual + begin + d);
      store(a.sum + begin + d, v[p]);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      total[0] += v[p][i];
  });
  row_sums(total, shared);
  const float mean = total[0] / static_cast<float>(a.D);
  float squares[1] = {0.0f};
  for_packs<kPacks, kWidth>(D, [&](int p, int) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      v[p][i] -= mean;
      squares[0] += v[p][i] * v[p][i];
    }
  });
  row_sums(squares, shared);
  const float rstd = rsqrtf(squares[0] / static_cast<float>(a.D) + a.epsilon);
  float most = 0.0f;
  for_packs<kPacks, kWidth>(D, [&](int p, int d) {
    float w[kWidth], b[kWidth];
    load(w, a.weight + d);
    load(b, a.bias + d);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      v[p][i] = v[p][i] * rstd * w[i] + b[i];
    store(a.y + begin + d, v[p]);
    most = largest_of(most, v[p]);
  });
  if (a.absmax != nullptr) raise_stored<T>(a.absmax, most);
  if (valid && threadIdx.x == 0) {
    a.stats[2 * row] = mean;
    a.stats[2 * row + 1] = rstd;
  }
}

template <class T>
struct Backward {
  T* dx;
  float *partial_dweight, *partial_dbias;
  const T *dy, *s, *weight;
  const float* stats;
  float* absmax;  // or nullptr
  std::int64_t N;
  int D;
};

template <class T, int kPacks, int kWidth>
__global__ void __launch_bounds__(kRowThreads<kPacks>) layernorm_backward_kernel(Backward<T> a) {
  __shared__ float shared[kMostRows][32];
  float dweight[kPacks][kWidth] = {}, dbias[kPacks][kWidth] = {};
  float most = 0.0f;
  for_rows_of_block(a.N, [&](std::int64_t row, bool valid) {
    const int D = valid ? a.D : 0;
    const std::int64_t begin = row * a.D;
    const float mean = valid ? a.stats[2 * row] : 0.0f;
    const float rstd = valid ? a.stats[2 * row + 1] : 0.0f;
    float g[kPacks][kWidth], z[kPacks][kWidth];
    float sums[2] = {0.0f, 0.0f};  // of g, of g * z
    for_packs<kPacks, kWidth>(D, [&](int p, int d) {
      float w[kWidth];
      load(g[p], a.dy + begin + d);
      load(z[p], a.s + begin + d);
      load(w, a.weight + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        z[p][i] = (z[p][i] - mean) * rstd;
        dweight[p][i] += g[p][i] * z[p][i];
        dbias[p][i] += g[p][i];
        g[p][i] *= w[i];
        sums[0] += g[p][i];
        sums[1] += g[p][i] * z[p][i];
      }
    });
    row_sums(sums, shared);
    const float mean_g = sums[0] / static_cast<float>(a.D);
    const float mean_gz = sums[1] / static_cast<float>(a.D);
    for_packs<kPacks, kWidth>(D, [&](int p, int d) {
      float out[kWidth];
      load(out, a.dx + begin + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        out[i] += rstd * (g[p][i] - mean_g - z[p][i] * mean_gz);
      store(a.dx + begin + d, out);
      most = largest_of(most, out);
    });
  });
  if (a.absmax != nullptr) raise_stored<T>(a.absmax, most);
  store_block_sums<kPacks, kWidth>(a.partial_dweight, dweight, a.D);
  __syncthreads();
  store_block_sums<kPacks, kWidth>(a.partial_dbias, dbias, a.D);
}

}  // namespace

void layernorm_forward(Stream& stream, const LayerNormForward& args) {
  const auto N = args.x.shape[0], D = args.x.shape[1];
  if (args.absmax) cuda::fill(stream, args.absmax, 0.0f);
  with_float(args.x.dtype, [&]<class T>(T) {
    const Forward<T> a{.y = args.y.as<T>(),
                       .sum = args.residual ? args.sum.as<T>() : nullptr,
                       .stats = args.stats.as<float>(),
                       .x = args.x.as<T>(),
                       .residual = args.residual ? args.residual.as<T>() : nullptr,
                       .weight = args.weight.as<T>(),
                       .bias = args.bias.as<T>(),
                       .absmax = args.absmax ? args.absmax.as<float>() : nullptr,
                       .epsilon = args.epsilon,
                       .N = N,
                       .D = static_cast<int>(D)};
    with_row_packs<T>(
        D, {a.y, a.sum, a.x, a.residual, a.weight, a.bias}, [&](auto packs, auto width) {
          const auto rows = row_layout<packs, width>(D);
          launch(stream, {static_cast<unsigned>(divide_up(N, rows.rows)), rows.block()},
                 layernorm_forward_kernel<T, packs, width>, a);
        });
  });
}

void layernorm_backward(Stream& stream, Arena& scratch, const LayerNormBackward& args) {
  const auto N = args.s.shape[0], D = args.s.shape[1], blocks = gradient_blocks(N);
  const Arena::Scope scope(scratch);
  const auto dweight = scratch.allocate("layernorm_dweight", DType::fp32, {blocks, D});
  const auto dbias = scratch.allocate("layernorm_dbias", DType::fp32, {blocks, D});
  if (stream.is_measuring()) return;
  if (args.absmax) cuda::fill(stream, args.absmax, 0.0f);
  with_float(args.s.dtype, [&]<class T>(T) {
    const Backward<T> a{.dx = args.dx.as<T>(),
                        .partial_dweight = dweight.as<float>(),
                        .partial_dbias = dbias.as<float>(),
                        .dy = args.dy.as<T>(),
                        .s = args.s.as<T>(),
                        .weight = args.weight.as<T>(),
                        .stats = args.stats.as<float>(),
                        .absmax = args.absmax ? args.absmax.as<float>() : nullptr,
                        .N = N,
                        .D = static_cast<int>(D)};
    with_row_packs<T>(D, {a.dx, a.dy, a.s, a.weight}, [&](auto packs, auto width) {
      const auto rows = row_layout<packs, width>(D);
      launch(stream, {static_cast<unsigned>(blocks), rows.block(), sums_bytes(rows, D)},
             layernorm_backward_kernel<T, packs, width>, a);
    });
  });
  add_block_sums(stream, args.dweight, dweight);
  add_block_sums(stream, args.dbias, dbias);
}

}  // namespace lockstep::cuda

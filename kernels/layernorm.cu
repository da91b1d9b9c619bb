// The kernels work like those of rmsnorm.cu. Forward keeps a row in registers between its two sums
// and its output. Backward sums weight gradients per block, then over blocks in order.
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

// Registers hold the sums of dweight and dbias. With rows of 8 packs per thread, registers suffice
// only for dweight. sum_columns then computes the sums of dbias in a separate kernel.
template <int kPacks>
constexpr bool kSumsBias = kPacks <= 4;

// dy and s are read again after the sums, from the L1 cache. If they stayed in registers, a
// multiprocessor could run only one block of 256 threads, which could not hide the latency of
// memory.
template <class T, int kPacks, int kWidth>
__global__ void __launch_bounds__(kRowThreads<kPacks>, 512 / kRowThreads<kPacks>)
    layernorm_backward_kernel(Backward<T> a) {
  __shared__ float shared[kMostRows][32];
  float dweight[kPacks][kWidth] = {}, dbias[kSumsBias<kPacks> ? kPacks : 1][kWidth] = {};
  float most = 0.0f;
  for_rows_of_block(a.N, [&](std::int64_t row, bool valid) {
    const int D = valid ? a.D : 0;
    const std::int64_t begin = row * a.D;
    const float mean = valid ? a.stats[2 * row] : 0.0f;
    const float rstd = valid ? a.stats[2 * row + 1] : 0.0f;
    float sums[2] = {0.0f, 0.0f};  // of g = dy weight, and of g z
    for_packs<kPacks, kWidth>(D, [&](int p, int d) {
      float dy[kWidth], s[kWidth], w[kWidth];
      load(dy, a.dy + begin + d);
      load(s, a.s + begin + d);
      load(w, a.weight + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float z = (s[i] - mean) * rstd, g = dy[i] * w[i];
        dweight[p][i] += dy[i] * z;
        if constexpr (kSumsBias<kPacks>) dbias[p][i] += dy[i];
        sums[0] += g;
        sums[1] += g * z;
      }
    });
    row_sums(sums, shared);
    const float mean_g = sums[0] / static_cast<float>(a.D);
    const float mean_gz = sums[1] / static_cast<float>(a.D);
    for_packs<kPacks, kWidth, kSumsBias<kPacks> ? kPacks : 1>(D, [&](int, int d) {
      float dy[kWidth], s[kWidth], w[kWidth], out[kWidth];
      load(dy, a.dy + begin + d);
      load(s, a.s + begin + d);
      load(w, a.weight + d);
      load(out, a.dx + begin + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float z = (s[i] - mean) * rstd;
        out[i] += rstd * (dy[i] * w[i] - mean_g - z * mean_gz);
      }
      store(a.dx + begin + d, out);
      most = largest_of(most, out);
    });
  });
  if (a.absmax != nullptr) raise_stored<T>(a.absmax, most);
  store_block_sums<kPacks, kWidth>(a.partial_dweight, dweight, a.D);
  if constexpr (kSumsBias<kPacks>) {
    __syncthreads();
    store_block_sums<kPacks, kWidth>(a.partial_dbias, dbias, a.D);
  }
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
      if constexpr (!kSumsBias<packs>) sum_columns(stream, dbias, args.dy);
    });
  });
  add_block_sums(stream, args.dweight, dweight);
  add_block_sums(stream, args.dbias, dbias);
}

}  // namespace lockstep::cuda

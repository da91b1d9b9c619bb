// A block takes a row twice: first the maximum and the sum of exponentials, both at once, then the
// gradient in place of the logits, from the end of the row back: what was read last is still in the
// L2 cache. 264 rows are under way on an H100 or H200.
#include "core/integer.h"
#include "kernels/cross_entropy.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kPacks = 4;  // of a thread, loaded together

// Sum of exp(x - maximum) over some x. Of none: the maximum is a number below all others, so that
// no difference is infinity - infinity.
template <class T>
struct Exponentials {
  float maximum = std::numeric_limits<float>::lowest();
  float sum = 0.0f;

  template <int N>
  __device__ void add(const float (&x)[N]) {
    float most = maximum;
#pragma unroll
    for (int i = 0; i < N; ++i)
      most = fmaxf(most, x[i]);
    sum *= exponential<T>(maximum - most);
    maximum = most;
#pragma unroll
    for (int i = 0; i < N; ++i)
      sum += exponential<T>(x[i] - most);
  }
};

// Of columns [0, V) of a row, the same in all threads of the block.
template <class T, int kWidth>
__device__ inline Exponentials<T> exponentials_of(const T* row, int V) {
  __shared__ float shared[32];
  Exponentials<T> e;
  constexpr int kStride = kThreads * kWidth;
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < V; i += kPacks * kStride)
    with_packs<kPacks, kWidth, kStride>(row, i, V, [&](const Pack<T, kWidth>& pack, int v) {
      float x[kWidth];
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        x[k] = to_float(pack.v[k]);
      if (v + kWidth > V) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
          if (v + k >= V) x[k] = -INFINITY;
      }
      e.add(x);
    });
  const float most = block_reduce(e.maximum, shared, [](float a, float b) { return fmaxf(a, b); });
  const float sum = block_reduce(e.sum * exponential<T>(e.maximum - most), shared,
                                 [](float a, float b) { return a + b; });
  return {most, sum};
}

// CrossEntropy as pointers.
struct Rows {
  float* losses;
  const std::int32_t* targets;
  int V, Vp;
  float gradient_scale, z_loss;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    cross_entropy_loss_kernel(const T* logits, Rows rows) {
  const auto n = static_cast<std::int64_t>(blockIdx.x);
  const int target = rows.targets[n];
  float loss = 0.0f;
  if (target >= 0) {  // all threads agree
    const T* row = logits + n * rows.Vp;
    const auto e = exponentials_of<T, kWidth>(row, rows.V);
    loss = e.maximum - to_float(row[target]) + logf(e.sum);
  }
  if (threadIdx.x == 0) rows.losses[n] = loss;
}

template <class T, int kWidth>
__device__ inline void zero_row(T* row, int columns) {
  constexpr float kZeros[kWidth] = {};
  for (int v = static_cast<int>(threadIdx.x) * kWidth; v < columns; v += kThreads * kWidth)
    store(row + v, kZeros);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2) cross_entropy_gradient_kernel(T* logits, Rows rows) {
  const auto n = static_cast<std::int64_t>(blockIdx.x);
  T* row = logits + n * rows.Vp;
  const int target = rows.targets[n], V = rows.V;
  if (target < 0) {  // all threads agree
    if (threadIdx.x == 0) rows.losses[n] = 0.0f;
    return zero_row<T, kWidth>(row, rows.Vp);
  }
  const float at_target = to_float(row[target]);
  const auto e =
      exponentials_of<T, kWidth>(row, V);  // then no other thread needs what it overwrites
  const float lse = e.maximum + logf(e.sum);
  if (threadIdx.x == 0)
    rows.losses[n] = e.maximum - at_target + logf(e.sum) + rows.z_loss * lse * lse;
  const float scale = rows.gradient_scale * (1.0f + 2.0f * rows.z_loss * lse) / e.sum;

  const auto replace = [&](const Pack<T, kWidth>& pack, int v) {
    float g[kWidth];
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      g[k] = scale * exponential<T>(to_float(pack.v[k]) - e.maximum);
    if (v <= target && target < v + kWidth) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        if (v + k == target) g[k] -= rows.gradient_scale;
    }
    if (v + kWidth > V) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        if (v + k >= V) g[k] = 0.0f;
    }
    store(row + v, g);
  };
  constexpr int kStride = kThreads * kWidth, kBatch = kPacks * kStride;
  const int batches = (rows.Vp + kBatch - 1) / kBatch;
  for (int batch = batches - 1; batch >= 0; --batch) {
    const int first = batch * kBatch + static_cast<int>(threadIdx.x) * kWidth;
    if (first < rows.Vp) with_packs<kPacks, kWidth, kStride>(row, first, rows.Vp, replace);
  }
}

constexpr int kSumThreads = 1024;

// In double: one block walks all rows.
__global__ void __launch_bounds__(kSumThreads)
    sum_losses_kernel(float* loss_sum, std::int32_t* valid_tokens, const float* losses,
                      const std::int32_t* targets, std::int64_t rows) {
  __shared__ double sums[32];
  __shared__ int counts[32];
  double sum = 0.0;
  int count = 0;
#pragma unroll 4
  for (std::int64_t n = threadIdx.x; n < rows; n += kSumThreads) {
    const bool valid = targets[n] >= 0;
    sum += valid ? static_cast<double>(losses[n]) : 0.0;
    count += valid ? 1 : 0;
  }
  sum = block_reduce(sum, sums, [](double a, double b) { return a + b; });
  count = block_reduce(count, counts, [](int a, int b) { return a + b; });
  if (threadIdx.x != 0) return;
  *loss_sum += static_cast<float>(sum);
  *valid_tokens += count;
}

Rows rows_of(const CrossEntropy& args, ConstTensor logits) {
  return {args.losses.as<float>(), args.targets.as<std::int32_t>(),
          args.vocabulary,         static_cast<int>(logits.shape[1]),
          args.gradient_scale,     args.z_loss};
}

}  // namespace

void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args) {
  with_float(logits.dtype, [&]<class T>(T) {
    with_width<T>(logits.shape[1], {logits.data}, [&](auto width) {
      launch(stream, {static_cast<unsigned>(logits.shape[0]), kThreads},
             cross_entropy_gradient_kernel<T, width>, logits.as<T>(), rows_of(args, logits));
    });
  });
}

void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args) {
  with_float(logits.dtype, [&]<class T>(T) {
    with_width<T>(logits.shape[1], {logits.data}, [&](auto width) {
      launch(stream, {static_cast<unsigned>(logits.shape[0]), kThreads},
             cross_entropy_loss_kernel<T, width>, logits.as<T>(), rows_of(args, logits));
    });
  });
}

void sum_losses(Stream& stream, Tensor loss_sum, Tensor valid_tokens, ConstTensor losses,
                ConstTensor targets) {
  launch(stream, {1, kSumThreads}, sum_losses_kernel, loss_sum.as<float>(),
         valid_tokens.as<std::int32_t>(), losses.as<float>(), targets.as<std::int32_t>(),
         losses.elements());
}

}  // namespace lockstep::cuda

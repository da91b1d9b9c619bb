// A block reads a row twice. The first pass computes the maximum and the sum of exponentials
// together. The second replaces the logits by their gradient, from the end of the row back, because
// the end is still in the L2 cache. 264 rows are in flight on an H100 or H200. If columns are
// divided over ranks, the first pass is a separate kernel, and the second begins with the results
// of all ranks.
#include "core/integer.h"
#include "kernels/cross_entropy.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kPacks = 4;  // packs that a thread loads together

// Exponentials is the sum of exp(x - maximum) over some x. Without any x, the maximum is the lowest
// float, so that no difference is infinity - infinity.
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

// Returns the Exponentials of columns [0, V) of a row, the same in all threads of the block.
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

// Rows is CrossEntropy as pointers. V is the number of this rank's columns that are in the
// vocabulary.
struct Rows {
  float* losses;
  const std::int32_t* targets;
  const float* parts;
  std::int64_t n;
  int ranks, first_column, V, Vp;
  float gradient_scale, z_loss;
};

// Combines the parts of all ranks for row n, in rank order.
template <class T>
__device__ inline Exponentials<T> combined(const Rows& rows, std::int64_t n, float& at_target) {
  Exponentials<T> all;
  const float* row = rows.parts + n * 3;
#pragma unroll 8
  for (int rank = 0; rank < rows.ranks; ++rank)
    all.maximum = fmaxf(all.maximum, row[rank * rows.n * 3]);
  at_target = 0.0f;
#pragma unroll 8
  for (int rank = 0; rank < rows.ranks; ++rank) {
    const float* part = row + rank * rows.n * 3;
    all.sum = fmaf(part[1], expf(part[0] - all.maximum), all.sum);
    at_target += part[2];
  }
  return all;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    cross_entropy_parts_kernel(float* parts, const T* logits, Rows rows) {
  const auto n = static_cast<std::int64_t>(blockIdx.x);
  const T* row = logits + n * rows.Vp;
  const int target = rows.targets[n], here = target - rows.first_column;
  Exponentials<T> e;
  if (target >= 0) e = exponentials_of<T, kWidth>(row, rows.V);  // all threads agree
  if (threadIdx.x != 0) return;
  float* part = parts + n * 3;
  part[0] = e.maximum;
  part[1] = e.sum;
  part[2] = target >= 0 && 0 <= here && here < rows.V ? to_float(row[here]) : 0.0f;
}

constexpr int kLossThreads = 256;

// Computes the loss of one row per thread.
__global__ void __launch_bounds__(kLossThreads) loss_of_parts_kernel(Rows rows) {
  const auto n = static_cast<std::int64_t>(blockIdx.x) * kLossThreads + threadIdx.x;
  if (n >= rows.n) return;
  float at_target;
  const auto e = combined<float>(rows, n, at_target);
  rows.losses[n] = rows.targets[n] < 0 ? 0.0f : e.maximum - at_target + logf(e.sum);
}

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

// kParts: the gradient is computed from the parts of all ranks.
template <class T, int kWidth, bool kParts>
__global__ void __launch_bounds__(kThreads, 2) cross_entropy_gradient_kernel(T* logits, Rows rows) {
  const auto n = static_cast<std::int64_t>(blockIdx.x);
  T* row = logits + n * rows.Vp;
  const int V = rows.V;
  int target = rows.targets[n];
  if (target < 0) {  // all threads agree
    if (threadIdx.x == 0) rows.losses[n] = 0.0f;
    return zero_row<T, kWidth>(row, rows.Vp);
  }
  float at_target;
  Exponentials<T> e;
  if constexpr (kParts) {
    e = combined<T>(rows, n, at_target);
    target -= rows.first_column;
  } else {
    at_target = to_float(row[target]);
    // After this, each thread reads only logits that it overwrites itself.
    e = exponentials_of<T, kWidth>(row, V);
  }
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

// Sums in double, because one block adds all rows.
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
  return {.losses = args.losses ? args.losses.as<float>() : nullptr,
          .targets = args.targets.as<std::int32_t>(),
          .parts = args.parts ? args.parts.as<float>() : nullptr,
          .n = logits.shape[0],
          .ranks = static_cast<int>(args.parts.shape[0]),
          .first_column = args.first_column,
          .V = columns_of_vocabulary(args, logits.shape[1]),
          .Vp = static_cast<int>(logits.shape[1]),
          .gradient_scale = args.gradient_scale,
          .z_loss = args.z_loss};
}

}  // namespace

void cross_entropy_parts(Stream& stream, Tensor parts, ConstTensor logits,
                         const CrossEntropy& args) {
  with_float(logits.dtype, [&]<class T>(T) {
    with_width<T>(logits.shape[1], {logits.data}, [&](auto width) {
      launch(stream, {static_cast<unsigned>(logits.shape[0]), kThreads},
             cross_entropy_parts_kernel<T, width>, parts.as<float>(), logits.as<T>(),
             rows_of(args, logits));
    });
  });
}

void cross_entropy_gradient(Stream& stream, Tensor logits, const CrossEntropy& args) {
  with_float(logits.dtype, [&]<class T>(T) {
    with_width<T>(logits.shape[1], {logits.data}, [&](auto width) {
      const auto kernel = args.parts ? cross_entropy_gradient_kernel<T, width, true>
                                     : cross_entropy_gradient_kernel<T, width, false>;
      launch(stream, {static_cast<unsigned>(logits.shape[0]), kThreads}, kernel, logits.as<T>(),
             rows_of(args, logits));
    });
  });
}

void cross_entropy_loss(Stream& stream, ConstTensor logits, const CrossEntropy& args) {
  if (args.parts)
    return launch(stream,
                  {static_cast<unsigned>(divide_up(logits.shape[0], kLossThreads)), kLossThreads},
                  loss_of_parts_kernel, rows_of(args, logits));
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

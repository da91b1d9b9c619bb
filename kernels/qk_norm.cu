// As rmsnorm.cu, with the heads of one kind (queries or keys) as rows.
#include "kernels/qk_norm.h"
#include "kernels/rows.cuh"

namespace lockstep::cuda {
namespace {

// Head h of `count` in token n, of which all have `heads`: rows 0 to N * count.
struct Heads {
  int first = 0, count = 0, heads = 0, normed = 0;
  __device__ std::int64_t offset(std::int64_t row, int K) const {
    return (row / count * heads + first + row % count) * K;
  }
  __device__ std::int64_t rstd(std::int64_t row) const {
    return row / count * normed + first + row % count;
  }
};

template <class T, int kPacks, int kWidth>
__global__ void __launch_bounds__(kRowThreads<kPacks>)
    qk_norm_forward_kernel(T* out, float* rstd, const T* qkv, const T* weight, float epsilon,
                           Heads which, std::int64_t rows, int K) {
  __shared__ float shared[kMostRows][32];
  const auto row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool valid = row < rows;
  const auto begin = valid ? which.offset(row, K) : 0;
  float v[kPacks][kWidth];
  float squares[1] = {0.0f};
  for_packs<kPacks, kWidth>(valid ? K : 0, [&](int p, int k) {
    load(v[p], qkv + begin + k);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      squares[0] += v[p][i] * v[p][i];
  });
  row_sums(squares, shared);
  const float r = rsqrtf(squares[0] / static_cast<float>(K) + epsilon);
  for_packs<kPacks, kWidth>(valid ? K : 0, [&](int p, int k) {
    float w[kWidth];
    load(w, weight + k);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      v[p][i] *= r * w[i];
    store(out + begin + k, v[p]);
  });
  if (valid && threadIdx.x == 0) rstd[which.rstd(row)] = r;
}

template <class T, int kPacks, int kWidth>
__global__ void __launch_bounds__(kRowThreads<kPacks>)
    qk_norm_backward_kernel(T* dqkv, float* partial, const T* qkv, const float* rstd,
                            const T* weight, Heads which, std::int64_t rows, int K) {
  __shared__ float shared[kMostRows][32];
  float dweight[kPacks][kWidth] = {};
  for_rows_of_block(rows, [&](std::int64_t row, bool valid) {
    const auto begin = valid ? which.offset(row, K) : 0;
    const float r = valid ? rstd[which.rstd(row)] : 0.0f;
    float g[kPacks][kWidth], v[kPacks][kWidth];
    float products[1] = {0.0f};
    for_packs<kPacks, kWidth>(valid ? K : 0, [&](int p, int k) {
      float w[kWidth];
      load(g[p], dqkv + begin + k);
      load(v[p], qkv + begin + k);
      load(w, weight + k);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        dweight[p][i] += g[p][i] * v[p][i] * r;
        g[p][i] *= w[i];
        products[0] += g[p][i] * v[p][i];
      }
    });
    row_sums(products, shared);
    const float c = products[0] / static_cast<float>(K) * r * r;
    for_packs<kPacks, kWidth>(valid ? K : 0, [&](int p, int k) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        g[p][i] = r * (g[p][i] - v[p][i] * c);
      store(dqkv + begin + k, g[p]);
    });
  });
  store_block_sums<kPacks, kWidth>(partial, dweight, K);
}

template <class T>
__global__ void copy_heads_kernel(T* out, const T* qkv, Heads which, int K) {
  const auto begin = which.offset(blockIdx.x, K);
  for (int k = static_cast<int>(threadIdx.x); k < K; k += static_cast<int>(blockDim.x))
    out[begin + k] = qkv[begin + k];
}

template <class T>
void forward(Stream& stream, const QkNormForward& args, ConstTensor weight, const Heads& which) {
  const auto rows = args.qkv.shape[0] * which.count, K = args.qkv.shape[2];
  with_row_packs<T>(K, {args.out.data, args.qkv.data, weight.data}, [&](auto packs, auto width) {
    const auto layout = row_layout<packs, width>(K);
    launch(stream, {static_cast<unsigned>(divide_up(rows, layout.rows)), layout.block()},
           qk_norm_forward_kernel<T, packs, width>, args.out.as<T>(), args.rstd.as<float>(),
           args.qkv.as<T>(), weight.as<T>(), args.epsilon, which, rows, static_cast<int>(K));
  });
}

template <class T>
void backward(Stream& stream, Arena& scratch, const QkNormBackward& args, Tensor dweight,
              ConstTensor weight, const Heads& which) {
  const auto rows = args.qkv.shape[0] * which.count, K = args.qkv.shape[2];
  const auto blocks = gradient_blocks(rows);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("qk_norm_dweight", DType::fp32, {blocks, K});
  if (stream.is_measuring()) return;
  with_row_packs<T>(K, {args.dqkv.data, args.qkv.data, weight.data}, [&](auto packs, auto width) {
    const auto layout = row_layout<packs, width>(K);
    launch(stream, {static_cast<unsigned>(blocks), layout.block(), sums_bytes(layout, K)},
           qk_norm_backward_kernel<T, packs, width>, args.dqkv.as<T>(), partial.as<float>(),
           args.qkv.as<T>(), args.rstd.as<float>(), weight.as<T>(), which, rows,
           static_cast<int>(K));
  });
  add_block_sums(stream, dweight, partial);
}

}  // namespace

void qk_norm_forward(Stream& stream, const QkNormForward& args) {
  const int heads = static_cast<int>(args.qkv.shape[1]), normed = args.heads + args.kv_heads;
  with_float(args.qkv.dtype, [&]<class T>(T) {
    forward<T>(stream, args, args.q_weight, {0, args.heads, heads, normed});
    forward<T>(stream, args, args.k_weight, {args.heads, args.kv_heads, heads, normed});
    if (args.out.data == args.qkv.data) return;
    const Heads values{normed, heads - normed, heads, normed};
    launch(stream, {static_cast<unsigned>(args.qkv.shape[0] * values.count), 64},
           copy_heads_kernel<T>, args.out.as<T>(), args.qkv.as<T>(), values,
           static_cast<int>(args.qkv.shape[2]));
  });
}

void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& args) {
  const int heads = static_cast<int>(args.qkv.shape[1]), normed = args.heads + args.kv_heads;
  with_float(args.qkv.dtype, [&]<class T>(T) {
    backward<T>(stream, scratch, args, args.dq_weight, args.q_weight,
                {0, args.heads, heads, normed});
    backward<T>(stream, scratch, args, args.dk_weight, args.k_weight,
                {args.heads, args.kv_heads, heads, normed});
  });
}

}  // namespace lockstep::cuda

// As rmsnorm.cu, with the heads of one kind (queries or keys) as rows. They are short: a row has as
// many lanes of a warp as it has packs, so that a warp has several.
#include <bit>

#include "kernels/attention.cuh"
#include "kernels/qk_norm.h"
#include "kernels/rows.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// Head h of `count` in token n, of which all have `heads`: rows 0 to N * count. Numbers of rows
// have 32 bits, in which division is fast.
struct Heads {
  unsigned first = 0, count = 0, heads = 0, normed = 0;
  __device__ std::int64_t offset(unsigned row, int K) const { return among(heads, row) * K; }
  __device__ std::int64_t rstd(unsigned row) const { return among(normed, row); }

 private:
  __device__ std::int64_t among(unsigned all, unsigned row) const {
    return static_cast<std::int64_t>(row / count) * all + first + row % count;
  }
};

template <class T, int kPacks, int kWidth>
__global__ void __launch_bounds__(kThreads)
    qk_norm_forward_kernel(T* out, float* rstd, const T* qkv, const T* weight, float epsilon,
                           Heads which, unsigned rows, int K) {
  const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
  const bool valid = row < rows;
  const auto begin = valid ? which.offset(row, K) : 0;
  float v[kPacks][kWidth] = {};
  float squares = 0.0f;
  for_packs<kPacks, kWidth>(valid ? K : 0, [&](int p, int k) {
    load(v[p], qkv + begin + k);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      squares += v[p][i] * v[p][i];
  });
  squares = lanes_sum(squares, blockDim.x);
  const float r = rsqrtf(squares / static_cast<float>(K) + epsilon);
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
__global__ void __launch_bounds__(kThreads)
    qk_norm_backward_kernel(T* dqkv, float* partial, const T* qkv, const float* rstd,
                            const T* weight, Heads which, unsigned rows, int K) {
  float dweight[kPacks][kWidth] = {};
  for_rows_of_block(rows, [&](std::int64_t number, bool valid) {
    const auto row = static_cast<unsigned>(number);
    const auto begin = valid ? which.offset(row, K) : 0;
    const float r = valid ? rstd[which.rstd(row)] : 0.0f;
    float g[kPacks][kWidth] = {}, v[kPacks][kWidth] = {};
    float products = 0.0f;
    for_packs<kPacks, kWidth>(valid ? K : 0, [&](int p, int k) {
      float w[kWidth];
      load(g[p], dqkv + begin + k);
      load(v[p], qkv + begin + k);
      load(w, weight + k);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        dweight[p][i] += g[p][i] * v[p][i] * r;
        g[p][i] *= w[i];
        products += g[p][i] * v[p][i];
      }
    });
    products = lanes_sum(products, blockDim.x);
    const float c = products / static_cast<float>(K) * r * r;
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

// Calls f(packs, width, layout) with integral constants: how many packs of what width a thread
// holds of a head of K elements at these addresses.
template <class T, class F>
void with_head_packs(std::int64_t rows, std::int64_t K,
                     std::initializer_list<const void*> addresses, F&& f) {
  check_head_size(K);
  LOCKSTEP_CHECK(rows <= INT32_MAX, "qk-norm of ", rows, " heads; a GPU takes 2^31");
  with_width<T>(K, addresses, [&](auto width) {
    constexpr int kLongest = static_cast<int>(kMostHeadSize) / (32 * width);
    const auto packs = static_cast<unsigned>(divide_up(K, width));
    const auto lanes = static_cast<int>(std::min(32u, std::bit_ceil(packs)));
    const RowLayout layout{.threads = lanes, .rows = kThreads / lanes};
    if (packs <= 32)
      f(std::integral_constant<int, 1>{}, width, layout);
    else
      f(std::integral_constant<int, kLongest>{}, width, layout);
  });
}

template <class T>
void forward(Stream& stream, const QkNormForward& args, ConstTensor weight, const Heads& which) {
  const auto rows = args.qkv.shape[0] * which.count, K = args.qkv.shape[2];
  with_head_packs<T>(rows, K, {args.out.data, args.qkv.data, weight.data},
                     [&](auto packs, auto width, const RowLayout& layout) {
                       launch(stream,
                              {static_cast<unsigned>(divide_up(rows, layout.rows)), layout.block()},
                              qk_norm_forward_kernel<T, packs, width>, args.out.as<T>(),
                              args.rstd.as<float>(), args.qkv.as<T>(), weight.as<T>(), args.epsilon,
                              which, static_cast<unsigned>(rows), static_cast<int>(K));
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
  with_head_packs<T>(
      rows, K, {args.dqkv.data, args.qkv.data, weight.data},
      [&](auto packs, auto width, const RowLayout& layout) {
        launch(stream, {static_cast<unsigned>(blocks), layout.block(), sums_bytes(layout, K)},
               qk_norm_backward_kernel<T, packs, width>, args.dqkv.as<T>(), partial.as<float>(),
               args.qkv.as<T>(), args.rstd.as<float>(), weight.as<T>(), which,
               static_cast<unsigned>(rows), static_cast<int>(K));
      });
  add_block_sums(stream, dweight, partial);
}

}  // namespace

void qk_norm_forward(Stream& stream, const QkNormForward& args) {
  const auto all = static_cast<unsigned>(args.qkv.shape[1]), q = static_cast<unsigned>(args.heads),
             k = static_cast<unsigned>(args.kv_heads), normed = q + k;
  with_float(args.qkv.dtype, [&]<class T>(T) {
    forward<T>(stream, args, args.q_weight, {0, q, all, normed});
    forward<T>(stream, args, args.k_weight, {q, k, all, normed});
    if (args.out.data == args.qkv.data) return;
    const Heads values{normed, all - normed, all, normed};
    launch(stream, {static_cast<unsigned>(args.qkv.shape[0] * values.count), 64},
           copy_heads_kernel<T>, args.out.as<T>(), args.qkv.as<T>(), values,
           static_cast<int>(args.qkv.shape[2]));
  });
}

void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& args) {
  const auto all = static_cast<unsigned>(args.qkv.shape[1]), q = static_cast<unsigned>(args.heads),
             k = static_cast<unsigned>(args.kv_heads), normed = q + k;
  with_float(args.qkv.dtype, [&]<class T>(T) {
    backward<T>(stream, scratch, args, args.dq_weight, args.q_weight, {0, q, all, normed});
    backward<T>(stream, scratch, args, args.dk_weight, args.k_weight, {q, k, all, normed});
  });
}

}  // namespace lockstep::cuda

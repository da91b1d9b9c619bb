// In forward a row is read once, kept in registers, and written once. In backward each block sums
// dweight over its share of the rows in registers, and a second kernel adds the blocks' sums in
// order.
#include "kernels/elementwise.h"
#include "kernels/rmsnorm.h"
#include "kernels/rows.cuh"

namespace lockstep::cuda {
namespace {

template <class T, int kPacks, int kWidth>
__global__ void __launch_bounds__(kRowThreads<kPacks>)
    rmsnorm_forward_kernel(T* y, float* rstd, T* sum, const T* x, const T* residual,
                           const T* weight, float epsilon, float* absmax, std::int64_t N, int D) {
  __shared__ float shared[kMostRows][32];
  const auto row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool valid = row < N;  // all threads of a row agree
  const std::int64_t begin = row * D;
  float v[kPacks][kWidth];
  float squares[1] = {0.0f};
  for_packs<kPacks, kWidth>(valid ? D : 0, [&](int p, int d) {
    load(v[p], x + begin + d);
    if (residual != nullptr) {
      add_rounded(v[p], residual + begin + d);
      store(sum + begin + d, v[p]);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      squares[0] += v[p][i] * v[p][i];
  });
  row_sums(squares, shared);
  const float r = rsqrtf(squares[0] / static_cast<float>(D) + epsilon);
  float most = 0.0f;
  for_packs<kPacks, kWidth>(valid ? D : 0, [&](int p, int d) {
    float w[kWidth];
    load(w, weight + d);
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      v[p][i] *= r * w[i];
    store(y + begin + d, v[p]);
    most = largest_of(most, v[p]);
  });
  if (absmax != nullptr) raise_stored<T>(absmax, most);
  if (valid && threadIdx.x == 0) rstd[row] = r;
}

// dy and s stay in registers between the sum and dx. For rows of 8 packs per thread registers do
// not suffice, so dy and s are read again from the L1 cache.
template <class T, int kPacks, int kWidth>
__global__ void __launch_bounds__(kRowThreads<kPacks>, 512 / kRowThreads<kPacks>)
    rmsnorm_backward_kernel(T* dx, float* partial, const T* dy, const T* s, const float* rstd,
                            const T* weight, float* absmax, std::int64_t N, int D) {
  constexpr bool kKeeps = kPacks <= 4;
  __shared__ float shared[kMostRows][32];
  float dweight[kPacks][kWidth] = {};
  float most = 0.0f;
  for_rows_of_block(N, [&](std::int64_t row, bool valid) {
    const std::int64_t begin = row * D;
    float g[kKeeps ? kPacks : 1][kWidth], v[kKeeps ? kPacks : 1][kWidth];
    float products[1] = {0.0f};
    const float r = valid ? rstd[row] : 0.0f;
    for_packs<kPacks, kWidth>(valid ? D : 0, [&](int p, int d) {
      const int kept = kKeeps ? p : 0;
      float w[kWidth];
      load(g[kept], dy + begin + d);
      load(v[kept], s + begin + d);
      load(w, weight + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        dweight[p][i] += g[kept][i] * v[kept][i] * r;
        g[kept][i] *= w[i];
        products[0] += g[kept][i] * v[kept][i];
      }
    });
    row_sums(products, shared);
    const float c = products[0] / static_cast<float>(D) * r * r;
    for_packs<kPacks, kWidth>(valid ? D : 0, [&](int p, int d) {
      const int kept = kKeeps ? p : 0;
      if constexpr (!kKeeps) {
        float w[kWidth];
        load(g[kept], dy + begin + d);
        load(v[kept], s + begin + d);
        load(w, weight + d);
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          g[kept][i] *= w[i];
      }
      float out[kWidth];
      load(out, dx + begin + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        out[i] += r * (g[kept][i] - v[kept][i] * c);
      store(dx + begin + d, out);
      most = largest_of(most, out);
    });
  });
  if (absmax != nullptr) raise_stored<T>(absmax, most);
  store_block_sums<kPacks, kWidth>(partial, dweight, D);
}

}  // namespace

void rmsnorm_forward(Stream& stream, const RmsNormForward& args) {
  const auto N = args.x.shape[0], D = args.x.shape[1];
  if (args.absmax) cuda::fill(stream, args.absmax, 0.0f);
  with_float(args.x.dtype, [&]<class T>(T) {
    const auto run = [&](auto packs, auto width) {
      const auto rows = row_layout<packs, width>(D);
      launch(stream, {static_cast<unsigned>(divide_up(N, rows.rows)), rows.block()},
             rmsnorm_forward_kernel<T, packs, width>, args.y.as<T>(), args.rstd.as<float>(),
             args.residual ? args.sum.as<T>() : nullptr, args.x.as<T>(),
             args.residual ? args.residual.as<T>() : nullptr, args.weight.as<T>(), args.epsilon,
             args.absmax ? args.absmax.as<float>() : nullptr, N, static_cast<int>(D));
    };
    with_row_packs<T>(
        D, {args.y.data, args.sum.data, args.x.data, args.residual.data, args.weight.data}, run);
  });
}

void rmsnorm_backward(Stream& stream, Arena& scratch, const RmsNormBackward& args) {
  const auto N = args.s.shape[0], D = args.s.shape[1], blocks = gradient_blocks(N);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("rmsnorm_dweight", DType::fp32, {blocks, D});
  if (stream.is_measuring()) return;
  if (args.absmax) cuda::fill(stream, args.absmax, 0.0f);
  with_float(args.s.dtype, [&]<class T>(T) {
    const auto run = [&](auto packs, auto width) {
      const auto rows = row_layout<packs, width>(D);
      launch(stream, {static_cast<unsigned>(blocks), rows.block(), sums_bytes(rows, D)},
             rmsnorm_backward_kernel<T, packs, width>, args.dx.as<T>(), partial.as<float>(),
             args.dy.as<T>(), args.s.as<T>(), args.rstd.as<float>(), args.weight.as<T>(),
             args.absmax ? args.absmax.as<float>() : nullptr, N, static_cast<int>(D));
    };
    with_row_packs<T>(D, {args.dx.data, args.dy.data, args.s.data, args.weight.data}, run);
  });
  add_block_sums(stream, args.dweight, partial);
}

}  // namespace lockstep::cuda

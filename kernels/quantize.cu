// A block of threads converts 128 x 128 elements and reads memory once. Each thread holds four rows
// of a pack of columns between the maxima and the conversion. The transpose goes through shared
// memory as words, each with four fp8 values of a column.
#include "kernels/quantize.h"

#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

#include "core/fp8.h"
#include "core/integer.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"
#include "kernels/quotient.h"

namespace lockstep::cuda {
namespace {

constexpr int kSide = static_cast<int>(kScaledBlock);
constexpr int kWidth = 8;                // columns of a thread
constexpr int kRows = 4;                 // rows of a thread
constexpr int kAcross = kSide / kWidth;  // threads across the columns
constexpr int kThreads = kAcross * kSide / kRows;
constexpr int kWarps = kThreads / 32;

// Converts four numbers, two in one instruction. cuda_fp8.h gives the bits of to_fp8 for every x.
template <class F>
__device__ inline std::uint32_t four_fp8(float a, float b, float c, float d) {
#ifdef __CUDACC__
  constexpr auto kFormat = std::is_same_v<F, Fp8E4M3> ? __NV_E4M3 : __NV_E5M2;
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, kFormat);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, kFormat);
  return low | high << 16;
#else
  std::uint32_t codes = 0;
  int shift = 0;
  for (const float x : {a, b, c, d}) {
    codes |= std::uint32_t{to_fp8<F>(x).bits} << shift;
    shift += 8;
  }
  return codes;
#endif
}

struct Arguments {
  std::uint8_t *q, *transposed;  // nullptr: not wanted
  float *scales, *transposed_scales;
  const BFloat16* x;
  const float* absmax;
  int R, C;
  int scales_stride, transposed_stride;  // of Scaling::blocks
};

// Held is the elements of a thread, and their place in the block of 128 x 128.
struct Held {
  float v[kRows][kWidth];
  int row, column;  // first, in the block of threads
  bool valid;       // all of it lies in x, else nothing
};

__device__ inline Held load_held(const Arguments& a) {
  Held h;
  h.row = static_cast<int>(threadIdx.x) / kAcross * kRows;
  h.column = static_cast<int>(threadIdx.x) % kAcross * kWidth;
  const int row = static_cast<int>(blockIdx.y) * kSide + h.row;
  const int column = static_cast<int>(blockIdx.x) * kSide + h.column;
  h.valid = row < a.R && column < a.C;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (h.valid) {
      load(h.v[r], a.x + static_cast<std::int64_t>(row + r) * a.C + column);
    } else {
#pragma unroll
      for (int c = 0; c < kWidth; ++c)
        h.v[r][c] = 0.0f;
    }
  }
  return h;
}

// Returns the place of a word of the transpose [128 columns][32 words]. A warp writes words 2 g and
// 2 g + 1 of every eighth column, and reads all of one. In this order both access every bank once.
__device__ inline int word_at(int column, int word) {
  return column * 32 + (word ^ (column / kWidth * 2 & 31));
}

// Stores the fp8 values of value(r, v) for each number v of row r.
template <class F, class Value>
__device__ inline void store_rows(const Arguments& a, const Held& h, Value&& value) {
  if (!h.valid) return;
  const int row = static_cast<int>(blockIdx.y) * kSide + h.row;
  const int column = static_cast<int>(blockIdx.x) * kSide + h.column;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float v[kWidth];
#pragma unroll
    for (int c = 0; c < kWidth; ++c)
      v[c] = value(r, h.v[r][c]);
    Pack<std::uint32_t, 2> codes;
    codes.v[0] = four_fp8<F>(v[0], v[1], v[2], v[3]);
    codes.v[1] = four_fp8<F>(v[4], v[5], v[6], v[7]);
    *reinterpret_cast<Pack<std::uint32_t, 2>*>(a.q + static_cast<std::int64_t>(row + r) * a.C +
                                               column) = codes;
  }
}

// Stores the fp8 values of value(c, v) for each number v of column c, through shared memory.
template <class F, class Value>
__device__ inline void store_transposed(const Arguments& a, const Held& h, Value&& value) {
  __shared__ std::uint32_t words[kSide * kSide / 4];
#pragma unroll
  for (int c = 0; c < kWidth; ++c)
    words[word_at(h.column + c, h.row / kRows)] = four_fp8<F>(
        value(c, h.v[0][c]), value(c, h.v[1][c]), value(c, h.v[2][c]), value(c, h.v[3][c]));
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(blockIdx.y) * kSide + lane * 4;
  for (int c = static_cast<int>(threadIdx.x) / 32; c < kSide; c += kWarps) {
    const int column = static_cast<int>(blockIdx.x) * kSide + c;
    if (column < a.C && first_row < a.R)
      *reinterpret_cast<std::uint32_t*>(a.transposed + static_cast<std::int64_t>(column) * a.R +
                                        first_row) = words[word_at(c, lane)];
  }
}

template <class F>
__device__ inline void store_alike(const Arguments& a, Held h, float scale) {
  const Quotient quotient(scale);
#pragma unroll
  for (auto& row : h.v)
#pragma unroll
    for (float& v : row)
      v = quotient.of(v);
  const auto divided = [](int, float v) { return v; };
  if (a.q != nullptr) store_rows<F>(a, h, divided);
  if (a.transposed != nullptr) store_transposed<F>(a, h, divided);
}

template <class F>
__global__ void __launch_bounds__(kThreads) quantize_tensor_kernel(Arguments a) {
  const float scale = fp8_scale<F>(*a.absmax);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    if (a.scales != nullptr) *a.scales = scale;
    if (a.transposed_scales != nullptr) *a.transposed_scales = scale;
  }
  store_alike<F>(a, load_held(a), scale);
}

template <class F>
__global__ void __launch_bounds__(kThreads) quantize_blocks_kernel(Arguments a) {
  __shared__ float shared[32];
  const Held h = load_held(a);
  float most = 0.0f;
#pragma unroll
  for (const auto& row : h.v)
#pragma unroll
    for (const float v : row)
      most = fmaxf(most, fabsf(v));
  most = block_reduce(most, shared, [](float x, float y) { return fmaxf(x, y); });
  const float scale = fp8_scale<F>(most);
  const int i = static_cast<int>(blockIdx.y), j = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    if (a.scales != nullptr) a.scales[i * a.scales_stride + j] = scale;
    if (a.transposed_scales != nullptr) a.transposed_scales[j * a.transposed_stride + i] = scale;
  }
  store_alike<F>(a, h, scale);
}

// Computes q with a scale for each row of the block. 16 neighbouring lanes hold a row.
template <class F>
__device__ inline void quantize_rows(const Arguments& a, const Held& h) {
  float scale[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float most = 0.0f;
#pragma unroll
    for (const float v : h.v[r])
      most = fmaxf(most, fabsf(v));
#pragma unroll
    for (int offset = kAcross / 2; offset > 0; offset /= 2)
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
    scale[r] = fp8_scale<F>(most);
  }
  if (h.valid && h.column == 0) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kSide + h.row;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      a.scales[static_cast<std::int64_t>(blockIdx.x) * a.R + row + r] = scale[r];
  }
  store_rows<F>(a, h, [&](int r, float v) { return Quotient(scale[r]).of(v); });
}

// Computes the transpose with a scale for each of its rows, the columns of the block. Each warp
// holds eight rows of all columns.
template <class F>
__device__ inline void quantize_columns(const Arguments& a, const Held& h) {
  __shared__ float most[kWarps][kSide];
  __shared__ float scales[kSide];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    float m = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      m = fmaxf(m, fabsf(h.v[r][c]));
    m = fmaxf(m, __shfl_xor_sync(kAllLanes, m, kAcross));
    if (thread % 32 < kAcross) most[warp][h.column + c] = m;
  }
  __syncthreads();
  if (thread < kSide) {
    float m = 0.0f;
#pragma unroll
    for (const auto& of_warp : most)
      m = fmaxf(m, of_warp[thread]);
    scales[thread] = fp8_scale<F>(m);
    const int column = static_cast<int>(blockIdx.x) * kSide + thread;
    if (column < a.C)
      a.transposed_scales[static_cast<std::int64_t>(blockIdx.y) * a.C + column] = scales[thread];
  }
  __syncthreads();
  store_transposed<F>(a, h, [&](int c, float v) { return Quotient(scales[h.column + c]).of(v); });
}

template <class F>
__global__ void __launch_bounds__(kThreads) quantize_rows_kernel(Arguments a) {
  const Held h = load_held(a);
  if (a.q != nullptr) quantize_rows<F>(a, h);
  if (a.transposed != nullptr) quantize_columns<F>(a, h);
}

template <class F>
auto kernel_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::rows: return quantize_rows_kernel<F>;
    case Scaling::blocks: return quantize_blocks_kernel<F>;
    case Scaling::tensor: break;
  }
  return quantize_tensor_kernel<F>;
}

int stride_of(const Fp8Matrix& m) {
  return m && m.scaling == Scaling::blocks ? static_cast<int>(m.scales.shape[1]) : 0;
}

}  // namespace

void quantize(Stream& stream, const Fp8Matrix& matrix, const Fp8Matrix& transposed, ConstTensor x,
              ConstTensor absmax) {
  const auto R = x.shape[0], C = x.shape[1];
  const auto codes = [](const Fp8Matrix& m) { return reinterpret_cast<std::uint8_t*>(m.q.data); };
  const auto scales = [](const Fp8Matrix& m) { return m ? m.scales.as<float>() : nullptr; };
  const Arguments a{.q = codes(matrix),
                    .transposed = codes(transposed),
                    .scales = scales(matrix),
                    .transposed_scales = scales(transposed),
                    .x = x.as<BFloat16>(),
                    .absmax = absmax ? absmax.as<float>() : nullptr,
                    .R = static_cast<int>(R),
                    .C = static_cast<int>(C),
                    .scales_stride = stride_of(matrix),
                    .transposed_stride = stride_of(transposed)};
  const auto& any = matrix ? matrix : transposed;
  with_fp8(any.q.dtype, [&]<class F>(F) {
    launch(
        stream,
        {{static_cast<unsigned>(divide_up(C, kSide)), static_cast<unsigned>(divide_up(R, kSide))},
         kThreads},
        kernel_of<F>(any.scaling), a);
  });
}

}  // namespace lockstep::cuda

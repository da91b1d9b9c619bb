// Forward: a warp copies, or adds, the row of a token. Backward: tokens sorted by id are cut into
// chunks of 32, and a block sums the runs of equal ids in its chunk, in order. A run that an
// earlier chunk begins goes to `partial`, one row a chunk, which a second kernel adds in order: so
// a frequent token is the work of many blocks.
#include "core/integer.h"
#include "kernels/device.cuh"
#include "kernels/embedding.h"
#include "kernels/launch.cuh"
#include "kernels/sort.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 8;  // of a forward block

template <class T, int kWidth>
__global__ void __launch_bounds__(32 * kWarps)
    embedding_forward_kernel(T* y, const int* ids, const T* weight, const int* positions,
                             const T* position_weight, std::int64_t N, int D) {
  const auto n = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (n >= N) return;
  const T* token = weight + static_cast<std::int64_t>(ids[n]) * D;
  const T* place = position_weight == nullptr
                       ? nullptr
                       : position_weight + static_cast<std::int64_t>(positions[n]) * D;
  T* out = y + n * D;
  constexpr int kPacks = 4, kStride = 32 * kWidth;
  for (int first = static_cast<int>(threadIdx.x) * kWidth; first < D; first += kPacks * kStride)
    with_packs<kPacks, kWidth, kStride>(token, first, D, [&](const Pack<T, kWidth>& pack, int d) {
      auto& to = *reinterpret_cast<Pack<T, kWidth>*>(out + d);
      if (place == nullptr) {
        to = pack;
        return;
      }
      float v[kWidth];
      load(v, place + d);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        v[i] += to_float(pack.v[i]);
      store(out + d, v);
    });
}

constexpr int kChunk = 32;  // sorted tokens
constexpr int kThreads = 128;

// table[keys[i]] += dy[order[i]] for the i of chunk blockIdx.x; but partial[chunk] = their sum
// where the chunk before has the same key.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_runs_kernel(float* table, float* partial, const T* dy, const int* keys, const int* order,
                    int N, int D) {
  __shared__ int key[kChunk], row[kChunk];
  const int begin = static_cast<int>(blockIdx.x) * kChunk;
  const int size = N - begin < kChunk ? N - begin : kChunk;
  if (const int i = static_cast<int>(threadIdx.x); i < size) {
    key[i] = keys[begin + i];
    row[i] = order[begin + i];
  }
  __syncthreads();
  const int d = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
  if (d >= D) return;
  bool continues = begin > 0 && keys[begin - 1] == key[0];
  float sum[kWidth] = {};
  constexpr int kRows = 8;  // loaded together
  for (int first = 0; first < size; first += kRows) {
    Pack<T, kWidth> rows[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t n = row[std::min(first + r, size - 1)];
      rows[r] = *reinterpret_cast<const Pack<T, kWidth>*>(dy + n * D + d);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = first + r;
      if (i >= size) break;
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        sum[k] += to_float(rows[r].v[k]);
      if (i + 1 < size && key[i + 1] == key[i]) continue;
      float total[kWidth] = {};
      float* to = continues ? partial + static_cast<std::int64_t>(blockIdx.x) * D + d
                            : table + static_cast<std::int64_t>(key[i]) * D + d;
      if (!continues) load(total, to);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        total[k] += sum[k];
        sum[k] = 0.0f;
      }
      store(to, total);
      continues = false;
    }
  }
}

// Adds the rows of `partial` that continue the last run of chunk blockIdx.x, if that begins there.
__global__ void __launch_bounds__(kThreads)
    add_partial_kernel(float* table, const float* partial, const int* keys, int N, int D) {
  const int chunk = static_cast<int>(blockIdx.x), chunks = (N + kChunk - 1) / kChunk;
  const int key = keys[std::min((chunk + 1) * kChunk, N) - 1];
  if (chunk > 0 && keys[chunk * kChunk - 1] == key) return;
  // Chunks that begin with this key follow one another.
  int end = chunk + 1;
  for (int found = kThreads; found == kThreads; end += found) {
    const int c = end + static_cast<int>(threadIdx.x);
    found = __syncthreads_count(c < chunks && keys[c * kChunk] == key);
  }
  const int d = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (d >= D || end == chunk + 1) return;
  float* to = table + static_cast<std::int64_t>(key) * D + d;
  float sum = *to;
#pragma unroll 8
  for (int c = chunk + 1; c < end; ++c)
    sum += partial[static_cast<std::int64_t>(c) * D + d];
  *to = sum;
}

// table[keys[n]] += dy[n]
void add_rows(Stream& stream, Arena& scratch, Tensor table, ConstTensor keys, ConstTensor dy) {
  const auto N = dy.shape[0], D = dy.shape[1], chunks = divide_up(N, kChunk);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("embedding_partial", DType::fp32, {chunks, D});
  const auto sorted = sort_keys(stream, scratch, keys, table.shape[0]);
  if (stream.is_measuring()) return;
  const auto grid = [&](std::int64_t columns) {  // threads along D
    return dim3{static_cast<unsigned>(chunks), static_cast<unsigned>(divide_up(columns, kThreads))};
  };
  with_float(dy.dtype, [&]<class T>(T) {
    with_width<T>(D, {table.data, dy.data}, [&](auto width) {
      launch(stream, {grid(divide_up(D, width)), kThreads}, add_runs_kernel<T, width>,
             table.as<float>(), partial.as<float>(), dy.as<T>(), sorted.keys.as<int>(),
             sorted.order.as<int>(), static_cast<int>(N), static_cast<int>(D));
    });
  });
  launch(stream, {grid(D), kThreads}, add_partial_kernel, table.as<float>(), partial.as<float>(),
         sorted.keys.as<int>(), static_cast<int>(N), static_cast<int>(D));
}

}  // namespace

void embedding_forward(Stream& stream, Tensor y, ConstTensor ids, ConstTensor weight,
                       ConstTensor positions, ConstTensor position_weight) {
  const auto N = y.shape[0], D = y.shape[1];
  with_float(weight.dtype, [&]<class T>(T) {
    with_width<T>(D, {y.data, weight.data, position_weight.data}, [&](auto width) {
      launch(stream, {static_cast<unsigned>(divide_up(N, kWarps)), {32, kWarps}},
             embedding_forward_kernel<T, width>, y.as<T>(), ids.as<int>(), weight.as<T>(),
             position_weight ? positions.as<int>() : nullptr,
             position_weight ? position_weight.as<T>() : nullptr, N, static_cast<int>(D));
    });
  });
}

void embedding_backward(Stream& stream, Arena& scratch, Tensor dweight, Tensor dposition_weight,
                        ConstTensor dy, ConstTensor ids, ConstTensor positions) {
  add_rows(stream, scratch, dweight, ids, dy);
  if (dposition_weight) add_rows(stream, scratch, dposition_weight, positions, dy);
}

}  // namespace lockstep::cuda

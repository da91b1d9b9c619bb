// In forward a warp copies or adds the row of a token. In backward, tokens sorted by id are cut
// into chunks of 32. A block sums the runs of equal ids in its chunk, in order. If an earlier chunk
// begins a run, its sum goes to `partial`, which has one row per chunk. A second kernel adds these
// in order, so that many blocks share the work of a frequent token. Ids without a row in the table
// are sorted as one key after all others, and skipped.
#include "core/integer.h"
#include "kernels/device.cuh"
#include "kernels/embedding.h"
#include "kernels/packs.cuh"
#include "kernels/sort.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kWarps = 8;  // of a forward block

// Forward is EmbeddingForward as pointers.
template <class T>
struct Forward {
  T* y;
  const int* ids;
  const T* weight;
  const int* positions;
  const T* position_weight;  // or nullptr
  std::int64_t N, position_begin, position_end;
  int V, D, first_id;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(32 * kWarps) embedding_forward_kernel(Forward<T> a) {
  const auto n = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (n >= a.N) return;
  const int D = a.D, id = a.ids[n] - a.first_id;
  const T* row = nullptr;
  const T* place = nullptr;
  if (0 <= id && id < a.V) row = a.weight + static_cast<std::int64_t>(id) * D;
  if (a.position_weight != nullptr && a.position_begin <= n && n < a.position_end)
    place = a.position_weight + static_cast<std::int64_t>(a.positions[n]) * D;
  if (row == nullptr) {
    row = place;
    place = nullptr;
  }
  T* out = a.y + n * D;
  constexpr int kPacks = 4, kStride = 32 * kWidth;
  const int lane = static_cast<int>(threadIdx.x) * kWidth;
  if (row == nullptr) {
    constexpr float kZeros[kWidth] = {};
    for (int d = lane; d < D; d += kStride)
      store(out + d, kZeros);
    return;
  }
  for (int first = lane; first < D; first += kPacks * kStride)
    with_packs<kPacks, kWidth, kStride>(row, first, D, [&](const Pack<T, kWidth>& pack, int d) {
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

// Adds dy[order[i]] to table[keys[i]] for the i of chunk blockIdx.x. If the chunk before ends with
// the same key, the sum goes to partial[chunk] instead. Keys from `rows` on are skipped.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_runs_kernel(float* table, float* partial, const T* dy, const int* keys, const int* order,
                    int N, int D, int rows) {
  __shared__ int key[kChunk], row[kChunk];
  const int begin = static_cast<int>(blockIdx.x) * kChunk;
  const int own = begin + static_cast<int>(threadIdx.x);
  const bool is_here = threadIdx.x < kChunk && own < N && keys[own] < rows;
  if (is_here) {
    key[threadIdx.x] = keys[own];
    row[threadIdx.x] = order[own];
  }
  const int size = __syncthreads_count(is_here);
  if (size == 0) return;
  const int d = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kWidth;
  if (d >= D) return;
  bool continues = begin > 0 && keys[begin - 1] == key[0];
  float sum[kWidth] = {};
  constexpr int kRows = 8;  // loaded together
  for (int first = 0; first < size; first += kRows) {
    Pack<T, kWidth> packs[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t n = row[std::min(first + r, size - 1)];
      packs[r] = *reinterpret_cast<const Pack<T, kWidth>*>(dy + n * D + d);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = first + r;
      if (i >= size) break;
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        sum[k] += to_float(packs[r].v[k]);
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

// Adds the rows of `partial` that continue the last run of chunk blockIdx.x. It does so if the run
// begins in this chunk and the table has its key.
__global__ void __launch_bounds__(kThreads)
    add_partial_kernel(float* table, const float* partial, const int* keys, int N, int D,
                       int rows) {
  const int chunk = static_cast<int>(blockIdx.x), chunks = (N + kChunk - 1) / kChunk;
  const int key = keys[std::min((chunk + 1) * kChunk, N) - 1];
  if (key >= rows || (chunk > 0 && keys[chunk * kChunk - 1] == key)) return;
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

// LocalIds computes local[n] = the row of ids[n] in this part of the table, or V if another part
// has it.
struct LocalIds {
  int* local;
  const int* ids;
  int first, V;
  template <int kWidth>
  __device__ void apply(std::int64_t n) const {
    const int id = ids[n] - first;
    local[n] = 0 <= id && id < V ? id : V;
  }
};

// Adds dy[n] to table[keys[n]], if the table has that row. Keys are below `bound`.
void add_rows(Stream& stream, Arena& scratch, Tensor table, ConstTensor keys, std::int64_t bound,
              ConstTensor dy) {
  const auto N = dy.shape[0], D = dy.shape[1], chunks = divide_up(N, kChunk);
  const auto rows = static_cast<int>(table.shape[0]);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("embedding_partial", DType::fp32, {chunks, D});
  const auto sorted = sort_keys(stream, scratch, keys, bound);
  if (stream.is_measuring()) return;
  const auto grid = [&](std::int64_t columns) {  // threads along D
    return dim3{static_cast<unsigned>(chunks), static_cast<unsigned>(divide_up(columns, kThreads))};
  };
  with_float(dy.dtype, [&]<class T>(T) {
    with_width<T>(D, {table.data, dy.data}, [&](auto width) {
      launch(stream, {grid(divide_up(D, width)), kThreads}, add_runs_kernel<T, width>,
             table.as<float>(), partial.as<float>(), dy.as<T>(), sorted.keys.as<int>(),
             sorted.order.as<int>(), static_cast<int>(N), static_cast<int>(D), rows);
    });
  });
  launch(stream, {grid(D), kThreads}, add_partial_kernel, table.as<float>(), partial.as<float>(),
         sorted.keys.as<int>(), static_cast<int>(N), static_cast<int>(D), rows);
}

}  // namespace

void embedding_forward(Stream& stream, const EmbeddingForward& args) {
  const auto N = args.y.shape[0], D = args.y.shape[1];
  const auto &places = args.position_weight, &weight = args.weight;
  with_float(weight.dtype, [&]<class T>(T) {
    with_width<T>(D, {args.y.data, weight.data, places.data}, [&](auto width) {
      launch(stream, {static_cast<unsigned>(divide_up(N, kWarps)), {32, kWarps}},
             embedding_forward_kernel<T, width>,
             Forward<T>{.y = args.y.as<T>(),
                        .ids = args.ids.as<int>(),
                        .weight = weight.as<T>(),
                        .positions = places ? args.positions.as<int>() : nullptr,
                        .position_weight = places ? places.as<T>() : nullptr,
                        .N = N,
                        .position_begin = args.part.position_begin,
                        .position_end = args.part.position_end,
                        .V = static_cast<int>(weight.shape[0]),
                        .D = static_cast<int>(D),
                        .first_id = static_cast<int>(args.part.first_id)});
    });
  });
}

void embedding_backward(Stream& stream, Arena& scratch, const EmbeddingBackward& args) {
  const auto N = args.dy.shape[0], V = args.dweight.shape[0], from = args.part.position_begin,
             count = args.part.position_end - from;
  if (V == args.part.table_rows) {
    add_rows(stream, scratch, args.dweight, args.ids, V, args.dy);
  } else {
    const Arena::Scope scope(scratch);
    const auto local = scratch.allocate("local_ids", DType::int32, {N});
    if (!stream.is_measuring())
      launch_packs<1>(stream, N,
                      LocalIds{local.as<int>(), args.ids.as<int>(),
                               static_cast<int>(args.part.first_id), static_cast<int>(V)});
    add_rows(stream, scratch, args.dweight, local, V + 1, args.dy);
  }
  if (args.dposition_weight)
    add_rows(stream, scratch, args.dposition_weight, args.positions.rows(from, count),
             args.dposition_weight.shape[0], args.dy.rows(from, count));
}

}  // namespace lockstep::cuda

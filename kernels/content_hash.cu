// A block sums a chunk of elements, and adds the sum to the result.
#include <algorithm>

#include "core/integer.h"
#include "core/mix.h"
#include "kernels/content_hash.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kChunk = 16 * kThreads;  // elements

using Sum = unsigned long long;  // NOLINT(google-runtime-int): of atomicAdd

template <class Bits>
__global__ void __launch_bounds__(kThreads)
    content_hash_kernel(Sum* hash, const Bits* x, std::int64_t n, HashPlace place) {
  __shared__ Sum shared[32];
  const auto begin = static_cast<std::int64_t>(blockIdx.x) * kChunk;
  const auto end = std::min(n, begin + kChunk);
  Sum sum = 0;
  for (auto i = begin + static_cast<std::int64_t>(threadIdx.x); i < end; i += kThreads) {
    const auto j = place.first_index + i;
    const auto e = place.first + j / place.columns * place.stride + j % place.columns;
    sum += mix64((place.purpose + static_cast<std::uint64_t>(e)) * kGolden64 ^ x[i]);
  }
  sum = block_reduce(sum, shared, [](Sum a, Sum b) { return a + b; });
  if (threadIdx.x == 0) atomicAdd(hash, sum);
}

template <class Bits>
void add(Stream& stream, Tensor hash, ConstTensor x, const HashPlace& place) {
  launch(stream, {static_cast<unsigned>(divide_up(x.elements(), kChunk)), kThreads},
         content_hash_kernel<Bits>, reinterpret_cast<Sum*>(hash.data),
         reinterpret_cast<const Bits*>(x.data), x.elements(), place);
}

}  // namespace

void add_content_hash(Stream& stream, Tensor hash, ConstTensor x, const HashPlace& place) {
  if (x.dtype == DType::bf16)
    add<std::uint16_t>(stream, hash, x, place);
  else
    add<std::uint32_t>(stream, hash, x, place);
}

}  // namespace lockstep::cuda

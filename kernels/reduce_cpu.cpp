#include <algorithm>
#include <atomic>

#include "core/integer.h"
#include "kernels/parallel.h"
#include "kernels/reduce.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kChunk = 65536;       // elements reduced to one partial result
constexpr std::int64_t kSummedBlock = 4096;  // elements summed in fp32

template <class T>
float squares_of(const T* x, std::int64_t size) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < size; begin += kSummedBlock)
    sum += static_cast<double>(total(
        sum_vectors(std::min(kSummedBlock, size - begin), [&](std::int64_t i, std::int64_t n) {
          const Floats v = load(x + begin + i, n);
          return v * v;
        })));
  return static_cast<float>(sum);
}

template <class T>
float absmax_of(const T* x, std::int64_t size) {
  Floats m{};
  for_vectors(size, [&](std::int64_t i, std::int64_t n) { m = max(abs(load(x + i, n)), m); });
  return largest(m);
}

std::int64_t chunks_of(ConstTensor x) {
  return divide_up(x.elements(), kChunk);
}

}  // namespace

void sum_of_squares(Stream& stream, Arena& scratch, Tensor out,
                    std::span<const ConstTensor> tensors) {
  std::int64_t chunks = 0;
  for (const ConstTensor& x : tensors)
    chunks += chunks_of(x);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("sum_of_squares", DType::fp32, {chunks});
  if (stream.is_measuring()) return;
  float* of_tensor = partial.as<float>();
  for (const ConstTensor& x : tensors) {
    with_float(x.dtype, [&]<class T>(T) {
      stream.parallel_for(chunks_of(x), [&](std::int64_t chunk, int) {
        const auto begin = chunk * kChunk;
        of_tensor[chunk] = squares_of(x.as<T>() + begin, std::min(kChunk, x.elements() - begin));
      });
    });
    of_tensor += chunks_of(x);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < chunks; ++i)
    sum += static_cast<double>(partial.as<float>()[i]);
  *out.as<float>() += static_cast<float>(sum);
}

void absmax(Stream& stream, Tensor out, ConstTensor x) {
  std::atomic<float> most = 0.0f;
  with_float(x.dtype, [&]<class T>(T) {
    parallel_elements(stream, x.elements(), [&](std::int64_t begin, std::int64_t end) {
      const float m = absmax_of(x.as<T>() + begin, end - begin);
      float before = most.load();
      while (before < m && !most.compare_exchange_weak(before, m)) {
      }
    });
  });
  *out.as<float>() = most.load();
}

void sum_rows(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  const auto R = x.shape[0], C = x.shape[1], blocks = row_blocks(R);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("sum_rows", DType::fp32, {blocks, C});
  if (stream.is_measuring()) return;
  with_float(x.dtype, [&]<class T>(T) {
    stream.parallel_for(blocks, [&](std::int64_t block, int) {
      float* sums = partial.as<float>() + block * C;
      std::fill_n(sums, C, 0.0f);
      for (auto r = R * block / blocks; r < R * (block + 1) / blocks; ++r)
        for_vectors(C, [&](std::int64_t c, std::int64_t n) {
          store(sums + c, load(sums + c, n) + load(x.as<T>() + r * C + c, n), n);
        });
    });
  });
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t c = 0; c < C; ++c)
      out.as<float>()[c] += partial.as<float>()[block * C + c];
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

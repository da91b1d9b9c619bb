#include <algorithm>

#include "core/integer.h"
#include "kernels/reduce.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kChunk = 65536;  // elements reduced to one partial result
constexpr std::int64_t kBlock = 4096;   // elements summed in fp32

template <class T>
float squares_of(const T* x, std::int64_t size) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < size; begin += kBlock)
    sum += static_cast<double>(
        total(sum_vectors(std::min(kBlock, size - begin), [&](std::int64_t i, std::int64_t n) {
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

// partial[c] = f(chunk c).
template <class T, class F>
void reduce_chunks(Stream& stream, Tensor partial, ConstTensor x, F&& f) {
  stream.parallel_for(partial.elements(), [&](std::int64_t chunk, int) {
    const auto begin = chunk * kChunk;
    partial.as<float>()[chunk] = f(x.as<T>() + begin, std::min(kChunk, x.elements() - begin));
  });
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
  std::int64_t first = 0;
  for (const ConstTensor& x : tensors) {
    with_float(x.dtype, [&]<class T>(T) {
      reduce_chunks<T>(stream, partial.rows(first, chunks_of(x)), x, squares_of<T>);
    });
    first += chunks_of(x);
  }
  double sum = 0;
  for (std::int64_t i = 0; i < chunks; ++i)
    sum += static_cast<double>(partial.as<float>()[i]);
  *out.as<float>() += static_cast<float>(sum);
}

void absmax(Stream& stream, Arena& scratch, Tensor out, ConstTensor x) {
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("absmax", DType::fp32, {chunks_of(x)});
  if (stream.is_measuring()) return;
  with_float(x.dtype, [&]<class T>(T) { reduce_chunks<T>(stream, partial, x, absmax_of<T>); });
  float m = *out.as<float>();
  for (std::int64_t i = 0; i < partial.elements(); ++i)
    m = std::max(m, partial.as<float>()[i]);
  *out.as<float>() = m;
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

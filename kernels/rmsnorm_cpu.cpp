// Rows are spread over threads. Backward keeps one partial dweight a block of rows: which
// rows a partial sums is fixed by N alone, and partials are added in order, so the result does not
// depend on which thread ran what.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class T>
void forward_row(T* y, float* rstd, T* sum, const T* x, const T* residual, const T* weight,
                 std::int64_t D, float epsilon) {
  const Floats squares = sum_vectors(D, [&](std::int64_t d, std::int64_t n) {
    Floats v = load(x + d, n);
    if (residual != nullptr) {
      store(sum + d, v + load(residual + d, n), n);
      v = load(sum + d, n);
    }
    return v * v;
  });
  const float r = 1.0f / std::sqrt(total(squares) / static_cast<float>(D) + epsilon);
  *rstd = r;
  const T* s = residual != nullptr ? sum : x;
  for_vectors(D, [&](std::int64_t d, std::int64_t n) {
    store(y + d, load(s + d, n) * r * load(weight + d, n), n);
  });
}

template <class T>
void backward_row(T* dx, float* dweight, const T* dy, const T* s, float rstd, const T* weight,
                  std::int64_t D) {
  const Floats products = sum_vectors(D, [&](std::int64_t d, std::int64_t n) {
    return load(dy + d, n) * load(weight + d, n) * load(s + d, n);
  });
  const float c = total(products) / static_cast<float>(D) * rstd * rstd;
  for_vectors(D, [&](std::int64_t d, std::int64_t n) {
    const Floats g = load(dy + d, n), v = load(s + d, n);
    store(dx + d, load(dx + d, n) + rstd * (g * load(weight + d, n) - v * c), n);
    store(dweight + d, load(dweight + d, n) + g * v * rstd, n);
  });
}

}  // namespace

void rmsnorm_forward(Stream& stream, Tensor y, Tensor rstd, Tensor sum, ConstTensor x,
                     ConstTensor residual, ConstTensor weight, float epsilon, Tensor absmax) {
  const auto D = x.shape[1];
  const bool adds = residual.data != nullptr;  // and then there is a sum
  with_float(x.dtype, [&]<class T>(T) {
    stream.parallel_ranges(x.shape[0], 8, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n)
        forward_row(y.as<T>() + n * D, rstd.as<float>() + n, adds ? sum.as<T>() + n * D : nullptr,
                    x.as<T>() + n * D, adds ? residual.as<T>() + n * D : nullptr, weight.as<T>(), D,
                    epsilon);
    });
  });
  if (absmax) lockstep::absmax(stream, absmax, y);
}

void rmsnorm_backward(Stream& stream, Arena& scratch, Tensor dx, Tensor dweight, ConstTensor dy,
                      ConstTensor s, ConstTensor rstd, ConstTensor weight, Tensor absmax) {
  const auto N = s.shape[0], D = s.shape[1], blocks = row_blocks(N);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("rmsnorm_dweight", DType::fp32, {blocks, D});
  if (stream.is_measuring()) return;
  with_float(s.dtype, [&]<class T>(T) {
    stream.parallel_for(blocks, [&](std::int64_t block, int) {
      float* sums = partial.as<float>() + block * D;
      std::fill_n(sums, D, 0.0f);
      for (auto n = N * block / blocks; n < N * (block + 1) / blocks; ++n)
        backward_row(dx.as<T>() + n * D, sums, dy.as<T>() + n * D, s.as<T>() + n * D,
                     rstd.as<float>()[n], weight.as<T>(), D);
    });
  });
  stream.parallel_ranges(D, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = 0; block < blocks; ++block)
      for (auto d = begin; d < end; ++d)
        dweight.as<float>()[d] += partial.as<float>()[block * D + d];
  });
  if (absmax) lockstep::absmax(stream, absmax, dx);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

// Rows are divided over threads. Backward keeps one partial dweight per block of rows. The rows of
// a partial depend only on N, and partials are added in order. So the result does not depend on
// which thread computed a row.
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

void rmsnorm_forward(Stream& stream, const RmsNormForward& args) {
  const auto D = args.x.shape[1];
  const bool adds = bool(args.residual);  // and then there is a sum
  with_float(args.x.dtype, [&]<class T>(T) {
    const auto row = [&](auto t, std::int64_t n) { return t.template as<T>() + n * D; };
    stream.parallel_ranges(args.x.shape[0], 8, [&](std::int64_t begin, std::int64_t end) {
      for (auto n = begin; n < end; ++n)
        forward_row(row(args.y, n), args.rstd.as<float>() + n, adds ? row(args.sum, n) : nullptr,
                    row(args.x, n), adds ? row(args.residual, n) : nullptr, args.weight.as<T>(), D,
                    args.epsilon);
    });
  });
  if (args.absmax) lockstep::absmax(stream, args.absmax, args.y);
}

void rmsnorm_backward(Stream& stream, Arena& scratch, const RmsNormBackward& args) {
  const auto N = args.s.shape[0], D = args.s.shape[1], blocks = row_blocks(N);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("rmsnorm_dweight", DType::fp32, {blocks, D});
  if (stream.is_measuring()) return;
  with_float(args.s.dtype, [&]<class T>(T) {
    const auto row = [&](auto t, std::int64_t n) { return t.template as<T>() + n * D; };
    stream.parallel_for(blocks, [&](std::int64_t block, int) {
      float* sums = partial.as<float>() + block * D;
      std::fill_n(sums, D, 0.0f);
      for (auto n = N * block / blocks; n < N * (block + 1) / blocks; ++n)
        backward_row(row(args.dx, n), sums, row(args.dy, n), row(args.s, n),
                     args.rstd.as<float>()[n], args.weight.as<T>(), D);
    });
  });
  stream.parallel_ranges(D, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = 0; block < blocks; ++block)
      for (auto d = begin; d < end; ++d)
        args.dweight.as<float>()[d] += partial.as<float>()[block * D + d];
  });
  if (args.absmax) lockstep::absmax(stream, args.absmax, args.dx);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

// Rows are divided over threads. Backward keeps one partial dweight and dbias per block of rows.
// The rows of a partial depend only on N, and partials are added in order. So the result does not
// depend on which thread computed a row.
#include <algorithm>
#include <cmath>

#include "kernels/layernorm.h"
#include "kernels/parallel.h"
#include "kernels/reduce.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// Subtracting the mean makes lanes from n on wrong; first_lanes sets them to 0 again.
LOCKSTEP_INLINE Floats centred(Floats v, float mean, std::int64_t n) {
  return n == kLanes ? v - mean : first_lanes(v - mean, n);
}

template <class T>
void forward_row(const LayerNormForward& args, std::int64_t row, std::int64_t D) {
  const T* x = args.x.as<T>() + row * D;
  const T* s = x;
  if (args.residual) {
    T* sum = args.sum.as<T>() + row * D;
    const T* residual = args.residual.as<T>() + row * D;
    for_vectors(D, [&](std::int64_t d, std::int64_t n) {
      store(sum + d, load(x + d, n) + load(residual + d, n), n);
    });
    s = sum;
  }
  const auto size = static_cast<float>(D);
  const float mean =
      total(sum_vectors(D, [&](std::int64_t d, std::int64_t n) { return load(s + d, n); })) / size;
  const float squares = total(sum_vectors(D, [&](std::int64_t d, std::int64_t n) {
    const Floats v = centred(load(s + d, n), mean, n);
    return v * v;
  }));
  const float rstd = 1.0f / std::sqrt(squares / size + args.epsilon);
  float* stats = args.stats.as<float>() + 2 * row;
  stats[0] = mean;
  stats[1] = rstd;
  const T* weight = args.weight.as<T>();
  const T* bias = args.bias.as<T>();
  T* y = args.y.as<T>() + row * D;
  for_vectors(D, [&](std::int64_t d, std::int64_t n) {
    store(y + d, (load(s + d, n) - mean) * rstd * load(weight + d, n) + load(bias + d, n), n);
  });
}

// dweight and dbias are this block's partial sums.
template <class T>
void backward_row(const LayerNormBackward& args, std::int64_t row, std::int64_t D, float* dweight,
                  float* dbias) {
  T* dx = args.dx.as<T>() + row * D;
  const T* dy = args.dy.as<T>() + row * D;
  const T* s = args.s.as<T>() + row * D;
  const T* weight = args.weight.as<T>();
  const float* stats = args.stats.as<float>() + 2 * row;
  const float mean = stats[0], rstd = stats[1];
  Floats products{};
  const Floats sum = sum_vectors(D, [&](std::int64_t d, std::int64_t n) {
    const Floats g = load(dy + d, n) * load(weight + d, n);
    products += g * (load(s + d, n) - mean);  // g is 0 from lane n on
    return g;
  });
  const float a = total(sum) / static_cast<float>(D);
  const float b = total(products) / static_cast<float>(D) * rstd * rstd;
  for_vectors(D, [&](std::int64_t d, std::int64_t n) {
    const Floats gradient = load(dy + d, n), v = load(s + d, n) - mean;
    const Floats ds = rstd * (gradient * load(weight + d, n) - a - v * b);
    store(dx + d, load(dx + d, n) + ds, n);
    store(dweight + d, load(dweight + d, n) + gradient * v * rstd, n);
    store(dbias + d, load(dbias + d, n) + gradient, n);
  });
}

}  // namespace

void layernorm_forward(Stream& stream, const LayerNormForward& args) {
  const auto D = args.x.shape[1];
  with_float(args.x.dtype, [&]<class T>(T) {
    stream.parallel_ranges(args.x.shape[0], 8, [&](std::int64_t begin, std::int64_t end) {
      for (auto row = begin; row < end; ++row)
        forward_row<T>(args, row, D);
    });
  });
  if (args.absmax) lockstep::absmax(stream, args.absmax, args.y);
}

void layernorm_backward(Stream& stream, Arena& scratch, const LayerNormBackward& args) {
  const auto N = args.s.shape[0], D = args.s.shape[1], blocks = row_blocks(N);
  const Arena::Scope scope(scratch);
  const auto partial = scratch.allocate("layernorm_gradients", DType::fp32, {blocks, 2, D});
  if (stream.is_measuring()) return;
  with_float(args.s.dtype, [&]<class T>(T) {
    stream.parallel_for(blocks, [&](std::int64_t block, int) {
      float* sums = partial.as<float>() + block * 2 * D;
      std::fill_n(sums, 2 * D, 0.0f);
      for (auto row = N * block / blocks; row < N * (block + 1) / blocks; ++row)
        backward_row<T>(args, row, D, sums, sums + D);
    });
  });
  stream.parallel_ranges(D, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      const float* sums = partial.as<float>() + block * 2 * D;
      for (auto d = begin; d < end; ++d) {
        args.dweight.as<float>()[d] += sums[d];
        args.dbias.as<float>()[d] += sums[D + d];
      }
    }
  });
  if (args.absmax) lockstep::absmax(stream, args.absmax, args.dx);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

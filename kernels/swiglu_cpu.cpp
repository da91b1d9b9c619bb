#include "kernels/reduce.h"
#include "kernels/swiglu.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class T>
void forward_row(T* hidden, const T* gate, const T* up, std::int64_t F) {
  for_vectors(F, [&](std::int64_t f, std::int64_t n) {
    const Floats a = load(gate + f, n);
    store(hidden + f, a * sigmoid(a) * load(up + f, n), n);
  });
}

template <class T>
void backward_row(T* dgate, T* dup, const T* dhidden, const T* gate, const T* up, std::int64_t F) {
  for_vectors(F, [&](std::int64_t f, std::int64_t n) {
    const Floats a = load(gate + f, n), u = load(up + f, n), g = load(dhidden + f, n);
    const auto s = sigmoid_and_slope(a);
    store(dgate + f, g * u * (s.value + a * s.slope), n);
    store(dup + f, g * a * s.value, n);
  });
}

constexpr std::int64_t kGrain = 16384;  // elements per piece

}  // namespace

void swiglu_forward(Stream& stream, Tensor hidden, ConstTensor gate_up, Tensor absmax) {
  const auto N = hidden.shape[0], F = hidden.shape[1];
  with_float(hidden.dtype, [&]<class T>(T) {
    stream.parallel_ranges(N, kGrain / std::max<std::int64_t>(F, 1) + 1,
                           [&](std::int64_t begin, std::int64_t end) {
                             for (auto n = begin; n < end; ++n) {
                               const T* row = gate_up.as<T>() + n * 2 * F;
                               forward_row(hidden.as<T>() + n * F, row, row + F, F);
                             }
                           });
  });
  if (absmax) lockstep::absmax(stream, absmax, hidden);
}

void swiglu_backward(Stream& stream, Tensor dgate_up, ConstTensor dhidden, ConstTensor gate_up,
                     Tensor absmax) {
  const auto N = dhidden.shape[0], F = dhidden.shape[1];
  with_float(dhidden.dtype, [&]<class T>(T) {
    stream.parallel_ranges(
        N, kGrain / std::max<std::int64_t>(F, 1) + 1, [&](std::int64_t begin, std::int64_t end) {
          for (auto n = begin; n < end; ++n) {
            const T* row = gate_up.as<T>() + n * 2 * F;
            T* gradient = dgate_up.as<T>() + n * 2 * F;
            backward_row(gradient, gradient + F, dhidden.as<T>() + n * F, row, row + F, F);
          }
        });
  });
  if (absmax) lockstep::absmax(stream, absmax, dgate_up);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

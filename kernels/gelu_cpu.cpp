#include "kernels/gelu.h"
#include "kernels/parallel.h"
#include "kernels/reduce.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {

void gelu_forward(Stream& stream, Tensor y, ConstTensor x, Tensor absmax) {
  with_float(x.dtype, [&]<class T>(T) {
    parallel_elements(stream, x.elements(), [&](std::int64_t begin, std::int64_t end) {
      T* out = y.as<T>() + begin;
      const T* in = x.as<T>() + begin;
      for_vectors(end - begin, [&](std::int64_t i, std::int64_t n) {
        store(out + i, gelu(load(in + i, n)), n);
      });
    });
  });
  if (absmax) lockstep::absmax(stream, absmax, y);
}

void gelu_backward(Stream& stream, Tensor dx, ConstTensor dy, ConstTensor x, Tensor absmax) {
  with_float(x.dtype, [&]<class T>(T) {
    parallel_elements(stream, x.elements(), [&](std::int64_t begin, std::int64_t end) {
      T* out = dx.as<T>() + begin;
      const T* gradient = dy.as<T>() + begin;
      const T* in = x.as<T>() + begin;
      for_vectors(end - begin, [&](std::int64_t i, std::int64_t n) {
        store(out + i, load(gradient + i, n) * gelu_slope(load(in + i, n)), n);
      });
    });
  });
  if (absmax) lockstep::absmax(stream, absmax, dx);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

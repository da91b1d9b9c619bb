// Plain loops over rows, vectors along the contiguous dimension.
#include <cstdint>

#include "kernels/check.h"
#include "kernels/matmul.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

template <class T>
float dot(const T* a, const T* b, std::int64_t n) {
  Floats sum{};
  for_vectors(n, [&](std::int64_t i, std::int64_t k) { sum += load(a + i, k) * load(b + i, k); });
  return total(sum);
}

// One element in a vector.
template <class T>
void finish(T* y, float sum, const T* pre_gelu_in, T* pre_gelu_out, const T* residual) {
  Floats v = splat(sum);
  if (pre_gelu_in != nullptr) v *= gelu_slope(splat(to_float(*pre_gelu_in)));
  if (pre_gelu_out != nullptr) {
    store(pre_gelu_out, v, 1);
    v = gelu(splat(to_float(*pre_gelu_out)));
  }
  if (residual != nullptr) v += to_float(*residual);
  store(y, v, 1);
}

}  // namespace

void matmul_forward(Stream& stream, Arena&, Tensor y, ConstTensor x, ConstTensor weight,
                    const MatmulEpilogue& epilogue) {
  const auto I = x.shape[1], O = weight.shape[0];
  with_float(x.dtype, [&]<class T>(T) {
    with_float(y.dtype, [&]<class Y>(Y) {
      stream.parallel_ranges(x.shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
        for (auto n = begin; n < end; ++n)
          for (std::int64_t o = 0; o < O; ++o) {
            float sum = dot(x.as<T>() + n * I, weight.as<T>() + o * I, I);
            if (epilogue.bias) sum += to_float(epilogue.bias.as<T>()[o]);
            const auto i = n * O + o;
            finish<Y>(y.as<Y>() + i, sum, nullptr,
                      epilogue.pre_gelu ? epilogue.pre_gelu.as<Y>() + i : nullptr,
                      epilogue.residual ? epilogue.residual.as<Y>() + i : nullptr);
          }
      });
    });
  });
}

void matmul_backward_input(Stream& stream, Arena& scratch, Tensor dx, ConstTensor dy,
                           ConstTensor weight, ConstTensor pre_gelu) {
  const auto N = dy.shape[0], O = weight.shape[0], I = weight.shape[1];
  const Arena::Scope scope(scratch);
  const auto sums = scratch.allocate("matmul_dx", DType::fp32, {stream.threads(), I});
  with_float(dy.dtype, [&]<class T>(T) {
    stream.parallel_for(N, [&](std::int64_t n, int thread) {
      float* row = sums.as<float>() + thread * I;
      for_vectors(I, [&](std::int64_t i, std::int64_t k) {
        Floats v{};
        for (std::int64_t o = 0; o < O; ++o)
          v += to_float(dy.as<T>()[n * O + o]) * load(weight.as<T>() + o * I + i, k);
        store(row + i, v, k);
      });
      for (std::int64_t i = 0; i < I; ++i)
        finish<T>(dx.as<T>() + n * I + i, row[i], pre_gelu ? pre_gelu.as<T>() + n * I + i : nullptr,
                  nullptr, nullptr);
    });
  });
}

void matmul_backward_weight(Stream& stream, Arena&, Tensor dweight, Tensor dbias, ConstTensor dy,
                            ConstTensor x) {
  const auto N = dy.shape[0], O = dy.shape[1], I = x.shape[1];
  with_float(dy.dtype, [&]<class T>(T) {
    stream.parallel_for(O, [&](std::int64_t o, int) {
      float* row = dweight.as<float>() + o * I;
      float sum = 0;
      for (std::int64_t n = 0; n < N; ++n)
        sum += to_float(dy.as<T>()[n * O + o]);
      if (dbias) dbias.as<float>()[o] += sum;
      for_vectors(I, [&](std::int64_t i, std::int64_t k) {
        Floats v{};
        for (std::int64_t n = 0; n < N; ++n)
          v += to_float(dy.as<T>()[n * O + o]) * load(x.as<T>() + n * I + i, k);
        store(row + i, load(row + i, k) + v, k);
      });
    });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

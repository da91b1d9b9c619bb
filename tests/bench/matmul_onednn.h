// oneDNN's products, to compare with.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor.h"

namespace lockstep::bench {

// c [M, N] = (accumulate ? c : 0) + op(a) op(b), row-major; transpose_a: a is [K, M], transpose_b:
// b is [N, K].
class OneDnnProduct {
 public:
  OneDnnProduct(Tensor c, ConstTensor a, ConstTensor b, bool transpose_a, bool transpose_b,
                bool accumulate);
  ~OneDnnProduct();
  void run_matmul();
  void run_sgemm();  // fp32 only

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::bench

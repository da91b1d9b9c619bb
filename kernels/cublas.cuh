// This file wraps the part of cuBLASLt that matmul.cu and matmul_fp8.cu need. Its matrices are
// column-major: a row-major [R, C] is a column-major [C, R] here.
#pragma once

#include <cstdint>
#include <memory>

#include "core/arena.h"
#include "core/function_ref.h"
#include "core/stream.h"
#include "kernels/matmul_algorithms.h"
#include "kernels/quantize.h"

namespace lockstep {

// Product describes the matmul d [m, n] = epilogue(op(a) op(b) + c), with op(a) [m, k] and op(b)
// [k, n]. Sums are fp32.
struct Product {
  enum class Epilogue : std::uint8_t {
    none,
    bias,           // + bias [m], one value per row of d
    gelu,           // aux [m, n] = the sum, and d its GELU
    gelu_bias,      // the same after a bias
    gelu_gradient,  // d = the sum times gelu'(aux)
    bias_gradient,  // bias [n] = the sums of op(b) over k
  };

  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // a is stored [k, m], b [n, k]
  ConstTensor a, b;
  ConstTensor c;  // of the size and type of d, and may be d; absent: 0
  Tensor d;
  Epilogue epilogue = Epilogue::none;
  ConstTensor bias, aux;  // read or written, depending on the epilogue
  struct Fp8 {            // if a and b are fp8
    ConstTensor a_scales, b_scales;
    Scaling a_scaling = Scaling::tensor, b_scaling = Scaling::tensor;
    bool fast = false;  // see MatmulFp8
  };
  Fp8 fp8 = {};
};

// Cublas keeps cuBLASLt's state for a stream: its handle, and a plan for each requested matmul.
// kernels/matmul_algorithms.h explains which algorithm a plan takes.
class Cublas final : public Stream::Kept {
 public:
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

  Cublas();
  ~Cublas() override;

  // Allocates the workspace of multiply().
  static Tensor workspace(Arena& scratch) {
    return scratch.allocate("cublas_workspace", DType::uint8, {kWorkspaceBytes});
  }

  // Enqueues the matmul. Returns false, and enqueues nothing, if cuBLASLt has none with this
  // epilogue for these types, sizes and addresses.
  //   workspace [kWorkspaceBytes]
  [[nodiscard]] bool multiply(Stream& stream, const Product& product, Tensor workspace);
  // Does the same, but calls `unfused` if there is none, or if `unfused` was measured to be faster.
  // `unfused` enqueues a plain matmul and kernels that do the epilogue's work. Returns whether the
  // fused matmul was enqueued.
  bool multiply(Stream& stream, const Product& product, Tensor workspace,
                FunctionRef<void()> unfused);

  // Between these two calls, an algorithm is chosen for each requested matmul, and d may be wrong.
  // begin_choosing discards earlier plans.
  void begin_choosing(Device gpu, const MatmulAlgorithms& recorded, int held);
  ChosenAlgorithms end_choosing();

 private:
  struct State;
  bool multiply(Stream& stream, const Product& product, Tensor workspace,
                const FunctionRef<void()>* unfused);
  std::unique_ptr<State> state_;
};

namespace cuda {
// Adds bias [O] to y [N, O], rounding again. It is called if cuBLASLt has no such epilogue.
void add_bias(Stream& stream, Tensor y, ConstTensor bias);
}  // namespace cuda

}  // namespace lockstep

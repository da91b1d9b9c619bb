// cuBLASLt, as far as matmul.cu needs it. Its matrices are column-major: a row-major [R, C] is a
// column-major [C, R] here.
#pragma once

#include <cstdint>
#include <memory>

#include "core/arena.h"
#include "core/function_ref.h"
#include "core/stream.h"
#include "kernels/matmul_algorithms.h"
#include "kernels/quantize.h"

namespace lockstep {

// d [m, n] = epilogue(op(a) op(b) + c), where op(a) is [m, k] and op(b) [k, n]. Sums are fp32.
struct Product {
  enum class Epilogue : std::uint8_t {
    none,
    bias,           // + bias [m], one value a row of d
    gelu,           // aux [m, n] = the sum, and d its GELU
    gelu_bias,      // the same behind a bias
    gelu_gradient,  // d = the sum times gelu'(aux)
    bias_gradient,  // bias [n] = the sums of op(b) over k
  };

  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // a is stored [k, m], b [n, k]
  ConstTensor a, b;
  ConstTensor c;  // of the size and type of d, and may be d; absent: 0
  Tensor d;
  Epilogue epilogue = Epilogue::none;
  ConstTensor bias, aux;  // read or written, as the epilogue says
  struct Fp8 {            // where a and b are
    ConstTensor a_scales, b_scales;
    Scaling a_scaling = Scaling::tensor, b_scaling = Scaling::tensor;
    bool fast = false;  // see MatmulFp8
  };
  Fp8 fp8 = {};
};

// What cuBLASLt keeps for a stream: its handle, and of each product that was asked for its plan.
// Which algorithm a plan takes: see kernels/matmul_algorithms.h.
class Cublas final : public Stream::Kept {
 public:
  static constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;

  Cublas();
  ~Cublas() override;

  // For multiply().
  static Tensor workspace(Arena& scratch) {
    return scratch.allocate("cublas_workspace", DType::uint8, {kWorkspaceBytes});
  }

  // Enqueues the product. False where cuBLASLt has none with this epilogue for these types, sizes
  // and addresses; nothing happened then.
  //   workspace [kWorkspaceBytes]
  [[nodiscard]] bool multiply(Stream& stream, const Product& product, Tensor workspace);
  // The same, else `unfused`: a plain product and kernels that do the epilogue's work. That is done
  // too where it was measured to be faster. True where the product was enqueued as it is.
  bool multiply(Stream& stream, const Product& product, Tensor workspace,
                FunctionRef<void()> unfused);

  // Between the two each product that is asked for is chosen, and d may be wrong. Plans from before
  // are forgotten.
  void begin_choosing(const MatmulAlgorithms& recorded);
  ChosenAlgorithms end_choosing();

 private:
  struct State;
  bool multiply(Stream& stream, const Product& product, Tensor workspace,
                const FunctionRef<void()>* unfused);
  std::unique_ptr<State> state_;
};

namespace cuda {
// y [N, O] += bias [O], rounded again: where cuBLASLt has no such epilogue.
void add_bias(Stream& stream, Tensor y, ConstTensor bias);
}  // namespace cuda

}  // namespace lockstep

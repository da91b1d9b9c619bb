// cuBLASLt computes the matmuls. It sees a row-major [R, C] as [C, R], so that its matmul is
//
//   forward          y^T  [O, N] = W  [O, I] x^T [I, N]      W stored [I, O], transposed
//   backward, input  dx^T [I, N] = W^T [I, O] dy^T [O, N]
//   backward, weight dW^T [I, O] = x^T [I, N] dy [N, O]      dy stored [O, N], transposed
//
// If cuBLASLt has no epilogue (for some types and odd sizes) or a slow one, kernels after the
// matmul do its work.
#include "kernels/cublas.cuh"
#include "kernels/gelu.h"
#include "kernels/matmul.h"
#include "kernels/packs.cuh"
#include "kernels/rows.cuh"

namespace lockstep::cuda {
namespace {

using Epilogue = Product::Epilogue;

void multiply_plainly(Stream& stream, Product product, Tensor memory) {
  product.epilogue = Epilogue::none;
  product.bias = product.aux = {};
  LOCKSTEP_CHECK(stream.kept<Cublas>().multiply(stream, product, memory),
                 "cuBLASLt has no matmul of ", name(product.a.dtype), " with m = ", product.m,
                 ", n = ", product.n, ", k = ", product.k);
}

template <class T, class B>
__global__ void add_bias_kernel(T* y, const B* bias, std::int64_t n, std::int64_t O) {
  const auto i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = from_float<T>(to_float(y[i]) + to_float(bias[i % O]));
}

template <class T>
struct Add {
  T* y;
  const T* x;
  template <int kWidth>
  __device__ void apply(std::int64_t at) const {
    float v[kWidth];
    load(v, y + at);
    add_rounded(v, x + at);
    store(y + at, v);
  }
};

void add(Stream& stream, Tensor y, ConstTensor x) {
  with_float(y.dtype, [&]<class T>(T) {
    apply_to_packs<T>(stream, y.elements(), {y.data, x.data}, Add<T>{y.as<T>(), x.as<T>()});
  });
}

}  // namespace

void add_bias(Stream& stream, Tensor y, ConstTensor bias) {
  constexpr int kThreads = 256;
  const auto n = y.elements();
  with_float(y.dtype, [&]<class T>(T) {
    with_float(bias.dtype, [&]<class B>(B) {
      launch(stream, {static_cast<unsigned>(divide_up(n, kThreads)), kThreads},
             add_bias_kernel<T, B>, y.as<T>(), bias.as<B>(), n, bias.elements());
    });
  });
}

void matmul_forward(Stream& stream, Arena& scratch, Tensor y, ConstTensor x, ConstTensor weight,
                    const MatmulEpilogue& epilogue) {
  const Arena::Scope scope(scratch);
  const auto memory = Cublas::workspace(scratch);
  if (stream.is_measuring()) return;
  const Product product{.m = weight.shape[0],
                        .n = x.shape[0],
                        .k = x.shape[1],
                        .transpose_a = true,
                        .transpose_b = false,
                        .a = weight,
                        .b = x,
                        .c = {},
                        .d = y,
                        .epilogue = Epilogue::none,
                        .bias = epilogue.bias,
                        .aux = epilogue.pre_gelu};
  auto& cublas = stream.kept<Cublas>();
  const auto add_up = [&](Tensor d, ConstTensor residual) {  // everything except GELU
    Product p = product;
    p.c = residual;
    p.d = d;
    if (p.bias) p.epilogue = Epilogue::bias;
    cublas.multiply(stream, p, memory, [&] {
      multiply_plainly(stream, p, memory);
      if (p.bias) add_bias(stream, d, p.bias);
    });
  };
  if (!epilogue.pre_gelu) return add_up(y, epilogue.residual);
  Product p = product;
  p.epilogue = epilogue.bias ? Epilogue::gelu_bias : Epilogue::gelu;
  cublas.multiply(stream, p, memory, [&] {
    add_up(epilogue.pre_gelu, {});
    cuda::gelu_forward(stream, y, epilogue.pre_gelu, {});
  });
  if (epilogue.residual) add(stream, y, epilogue.residual);
}

void matmul_backward_input(Stream& stream, Arena& scratch, Tensor dx, ConstTensor dy,
                           ConstTensor weight, ConstTensor pre_gelu) {
  const Arena::Scope scope(scratch);
  const auto memory = Cublas::workspace(scratch);
  if (stream.is_measuring()) return;
  const Product product{.m = weight.shape[1],
                        .n = dy.shape[0],
                        .k = weight.shape[0],
                        .transpose_a = false,
                        .transpose_b = false,
                        .a = weight,
                        .b = dy,
                        .c = {},
                        .d = dx,
                        .epilogue = pre_gelu ? Epilogue::gelu_gradient : Epilogue::none,
                        .bias = {},
                        .aux = pre_gelu};
  stream.kept<Cublas>().multiply(stream, product, memory, [&] {
    multiply_plainly(stream, product, memory);
    if (pre_gelu) cuda::gelu_backward(stream, dx, dx, pre_gelu, {});
  });
}

void matmul_backward_weight(Stream& stream, Arena& scratch, Tensor dweight, Tensor dbias,
                            ConstTensor dy, ConstTensor x, bool add) {
  const auto O = dy.shape[1], blocks = gradient_blocks(dy.shape[0]);
  const Arena::Scope scope(scratch);
  const auto memory = Cublas::workspace(scratch);
  const auto partial =
      dbias ? scratch.allocate("matmul_dbias", DType::fp32, {blocks, O}) : Tensor{};
  if (stream.is_measuring()) return;
  const auto sum = dbias ? partial.rows(0, 1) : Tensor{};
  const Product product{.m = x.shape[1],
                        .n = O,
                        .k = x.shape[0],
                        .transpose_a = false,
                        .transpose_b = true,
                        .a = x,
                        .b = dy,
                        .c = add ? dweight : Tensor{},
                        .d = dweight,
                        .epilogue = dbias ? Epilogue::bias_gradient : Epilogue::none,
                        .bias = sum,
                        .aux = {}};
  const bool is_fused = stream.kept<Cublas>().multiply(stream, product, memory, [&] {
    multiply_plainly(stream, product, memory);
    sum_columns(stream, partial, dy);
    add_block_sums(stream, dbias, partial);
  });
  if (is_fused && dbias) add_block_sums(stream, dbias, sum);
}

}  // namespace lockstep::cuda

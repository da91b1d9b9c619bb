// cuBLASLt computes the matmul as
//   y^T [C, R] = b [C, K] a^T [K, R]      b stored [K, C] column by column, transposed
// For fp8 matmuls, Hopper supports only this order of operands.
#include "kernels/cublas.cuh"
#include "kernels/matmul_fp8.h"

namespace lockstep::cuda {

void matmul_fp8(Stream& stream, Arena& scratch, const MatmulFp8& args) {
  const Arena::Scope scope(scratch);
  const auto workspace = Cublas::workspace(scratch);
  if (stream.is_measuring()) return;
  const Product product{.m = args.b.q.shape[0],
                        .n = args.a.q.shape[0],
                        .k = args.a.q.shape[1],
                        .transpose_a = true,
                        .transpose_b = false,
                        .a = args.b.q,
                        .b = args.a.q,
                        .c = args.residual,
                        .d = args.y,
                        .epilogue = args.bias ? Product::Epilogue::bias : Product::Epilogue::none,
                        .bias = args.bias,
                        .aux = {},
                        .fp8 = {.a_scales = args.b.scales,
                                .b_scales = args.a.scales,
                                .a_scaling = args.b.scaling,
                                .b_scaling = args.a.scaling,
                                .fast = args.fast}};
  auto& cublas = stream.kept<Cublas>();
  cublas.multiply(stream, product, workspace, [&] {
    Product plain = product;
    plain.epilogue = Product::Epilogue::none;
    plain.bias = {};
    if (!cublas.multiply(stream, plain, workspace))
      LOCKSTEP_FAIL("cuBLASLt has no matmul of ", name(args.b.q.dtype), " and ",
                    name(args.a.q.dtype), " with m = ", product.m, ", n = ", product.n,
                    ", k = ", product.k,
                    " on this GPU; set precision.fp8 to another scaling, or to off");
    if (args.bias) add_bias(stream, args.y, args.bias);
  });
}

}  // namespace lockstep::cuda

#include "kernels/matmul_fp8.h"

#include "tests/cuda/twins.h"
#include "tests/kernels/fp8.h"

namespace lockstep::testing::matmul_fp8_test {

struct Scalings {
  Scaling a, b;
};
struct MatmulFp8Cuda : ::testing::TestWithParam<Scalings> {};
INSTANTIATE_TEST_SUITE_P(scalings, MatmulFp8Cuda,
                         ::testing::Values(Scalings{Scaling::tensor, Scaling::tensor},
                                           Scalings{Scaling::rows, Scaling::rows},
                                           Scalings{Scaling::rows, Scaling::blocks}));

// Small whole numbers, of which every sum fits in the 13 bits that Hopper's tensor cores keep.
void make_small(const Fp8Matrix& m, Draw& draw) {
  for (std::int64_t i = 0; i < m.q.elements(); ++i) {
    const auto x = static_cast<float>(draw.between(-2, 2));
    m.q.data[i] = static_cast<std::byte>(encode_fp8(m.q.dtype, x));
  }
}

TEST_P(MatmulFp8Cuda, equals_the_cpu_kernel) {
  for_seeds(1, 8, [&](Draw& draw) {
    Twins t(draw.seed());
    Bench b{.seed = draw.seed()};
    const bool whole = GetParam().a == Scaling::tensor;
    const auto most = CudaTest::most(2, 16);
    const auto R = 16 * draw.between(1, most), C = (whole ? 16 : 128) * draw.between(1, most);
    const auto K = (whole ? 16 : 128) * draw.between(1, most);
    const auto types = draw.between(0, 2);  // at most one E5M2
    const bool small = draw.coin();
    const auto twin = [&](DType type, Scaling scaling, const Shape& shape) {
      const auto m = random_fp8(b, type, scaling, shape);
      if (small) make_small(m, draw);
      const auto q = t.add(m.q), scales = t.add(m.scales);
      return [=](const Side& on) { return Fp8Matrix{on(q), on(scales), scaling}; };
    };
    const auto a = twin(types == 1 ? DType::fp8_e5m2 : DType::fp8_e4m3, GetParam().a, {R, K});
    const auto w = twin(types == 2 ? DType::fp8_e5m2 : DType::fp8_e4m3, GetParam().b, {C, K});
    const auto type = draw.coin() ? DType::bf16 : DType::fp32;
    const bool biased = type == DType::bf16 && draw.coin(), adds = draw.coin();
    const float like = small ? 10.0f : 1e5f;  // a product
    const auto bias = biased ? t.random({C}, DType::bf16, like) : Twin{};
    const auto y = t.random({R, C}, type, like);
    const bool fast = whole && draw.coin();
    t.run([&](const Side& on) {
      matmul_fp8(on.stream, on.scratch,
                 {.y = on(y),
                  .a = a(on),
                  .b = w(on),
                  .bias = on(bias),
                  .residual = adds ? on(y) : Tensor{},
                  .fast = fast});
    });
    // Sums that do not fit are cut: before each promotion to fp32 to 13 bits, and where they are
    // fast, all along K.
    const double cut = small ? 0 : fast ? 8e-3 : 0x1p-12;
    testing::expect_close(t.download(y.device), doubles(y.host), std::max(tolerance(type), cut),
                          str("y of ", R, " x ", C, " x ", K));
  });
}

}  // namespace lockstep::testing::matmul_fp8_test

#include "kernels/pieces.h"

#include "tests/cuda/twins.h"

namespace lockstep::testing::pieces_test {

struct PiecesCuda : CudaTest {
  static DType type(Draw& draw) { return draw.coin() ? DType::fp32 : DType::bf16; }
};
INSTANTIATE_TEST_SUITE_P(types, PiecesCuda, kFloatTypes, dtype_name);

TEST_P(PiecesCuda, pack_pieces_moves_what_the_cpu_kernel_moves) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const bool packs = draw.coin();  // columns of packs, or any
    const auto unit = packs ? 8 : 1;
    const auto A = draw.between(1, 5), I = draw.between(1, 5),
               n = unit * draw.size(most(200, 20000) / unit);
    const auto first = unit * draw.between(0, n / unit - 1);
    const auto m = unit * draw.between(0, (n - first) / unit);
    SCOPED_TRACE(str("A ", A, " I ", I, " n ", n, " first ", first, " m ", m));
    const auto in = t.random({A, I, n}, GetParam()), out = t.poisoned({I, A, m}, type(draw));
    t.run([&](const Side& on) { pack_pieces(on.stream, on(out), on(in), first); });
    t.expect_equal(out, "out");
  });
}

// The order of the sum is the contract's: the bits are those of the CPU.
void check_sum(Draw& draw, std::int64_t P, std::int64_t C, std::int64_t rows, DType from,
               DType to) {
  Twins t(draw.seed());
  const auto n = C * rows;
  const auto pieces = t.random({P, n}, from), out = t.random({n}, to);
  const auto bias = draw.coin() ? t.random({C}, from) : Twin{};
  const bool in_place = from == to && draw.coin();
  const auto residual = in_place ? out : draw.coin() ? t.random({n}, from) : Twin{};
  const auto absmax = draw.coin() ? t.poisoned({1}, DType::fp32) : Twin{};
  const bool add = draw.coin();
  SCOPED_TRACE(str("P ", P, " n ", n, " C ", C, bias.host ? " bias" : "",
                   in_place ? " in place" : "", add ? " add" : ""));
  t.run([&](const Side& on) {
    sum_pieces(on.stream, {.out = on(out),
                           .pieces = on(pieces),
                           .bias = on(bias),
                           .residual = on(residual),
                           .add = add,
                           .absmax = on(absmax)});
  });
  t.expect_equal(out, "out");
  if (absmax.host) expect_absmax(t, absmax, out);
}

TEST_P(PiecesCuda, sum_pieces_has_the_bits_of_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    const std::int64_t some[] = {1, 2, 4, 8, draw.between(3, 40)};
    const auto P = some[draw.between(0, 4)];
    const auto C = draw.coin() ? 8 * draw.between(1, 40) : draw.size(300);
    check_sum(draw, P, C, draw.between(0, most(8, 1000)), GetParam(), type(draw));
  });
}

TEST_P(PiecesCuda, many_pieces_are_summed_in_their_order) {
  Draw draw(1);
  check_sum(draw, 1000, 24, 3, GetParam(), DType::fp32);
  check_sum(draw, 1001, 5, 3, GetParam(), DType::bf16);
}

}  // namespace lockstep::testing::pieces_test

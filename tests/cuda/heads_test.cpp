// What happens to query and key heads before attention: RoPE, qk-norm, and both in one pass.
#include "kernels/qk_norm.h"
#include "kernels/rope.h"
#include "tests/cuda/twins.h"

namespace lockstep::testing::heads_test {

struct HeadsCuda : CudaTest {};
INSTANTIATE_TEST_SUITE_P(types, HeadsCuda, kFloatTypes, dtype_name);

TEST_P(HeadsCuda, rope_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto N = draw.size(most(20, 5000)), P = draw.size(most(40, 8192));
    const auto K = draw.coin() ? 2 * draw.size(20) : 16 * draw.between(1, 9);
    const int G = static_cast<int>(draw.between(1, 3)),
              H = G * static_cast<int>(draw.between(1, 4));
    const auto qkv = t.random({N, H + 2 * G, K}, GetParam());
    const auto dqkv = t.random({N, H + 2 * G, K}, GetParam());
    const auto table = t.poisoned({P, K}, DType::fp32), positions = t.integers_below(P, {N});
    const auto scaling =
        draw.coin() ? std::optional<RopeScaling>({.original_context = 16}) : std::nullopt;
    const auto absmax = draw.coin() ? t.random({1}, DType::fp32, 9) : Twin{};
    t.run([&](const Side& on) {
      rope_table(on.stream, on(table), 10000.0f, scaling);
      rope_forward(on.stream, on(qkv), on(table), on(positions), H, G);
      rope_backward(on.stream, on(dqkv), on(table), on(positions), H, G, on(absmax));
    });
    t.expect_close(table, "table");
    t.expect_close(qkv, "qkv");
    t.expect_close(dqkv, "dqkv");
    if (absmax.host) expect_absmax(t, absmax, dqkv);
  });
}

TEST_P(HeadsCuda, qk_norm_equals_the_cpu_kernel) {
  few_draws([&](Draw& draw) {
    Twins t(draw.seed());
    const auto N = draw.size(most(20, 5000));
    const auto P = draw.size(most(40, 8192));
    const bool turned = draw.coin();
    const auto K = draw.coin() ? 16 * draw.between(1, 16)
                   : turned    ? 2 * draw.size(128)
                               : draw.size(256);
    const int G = static_cast<int>(draw.between(1, 3)),
              H = G * static_cast<int>(draw.between(1, 4));
    const bool in_place = draw.coin();
    const auto qkv = t.random({N, H + 2 * G, K}, GetParam());
    const auto out = in_place ? qkv : t.poisoned({N, H + 2 * G, K}, GetParam());
    const auto q_weight = t.random({K}, GetParam()), k_weight = t.random({K}, GetParam());
    const auto rstd = t.poisoned({N, H + G}, DType::fp32);
    const auto table = turned ? t.poisoned({P, K}, DType::fp32) : Twin{};
    const auto positions = turned ? t.integers_below(P, {N}) : Twin{};
    t.run([&](const Side& on) {
      if (turned) rope_table(on.stream, on(table), 10000.0f, {});
      qk_norm_forward(on.stream, {.out = on(out),
                                  .rstd = on(rstd),
                                  .qkv = on(qkv),
                                  .q_weight = on(q_weight),
                                  .k_weight = on(k_weight),
                                  .heads = H,
                                  .kv_heads = G,
                                  .table = on(table),
                                  .positions = on(positions)});
    });
    t.expect_close(out, "out");
    t.expect_close(rstd, "rstd");

    const auto dqkv = t.random({N, H + 2 * G, K}, GetParam());
    const auto dq_weight = t.random({K}, DType::fp32), dk_weight = t.random({K}, DType::fp32);
    const auto absmax = draw.coin() ? t.random({1}, DType::fp32, 9) : Twin{};
    t.run([&](const Side& on) {
      qk_norm_backward(on.stream, on.scratch,
                       {.dqkv = on(dqkv),
                        .dq_weight = on(dq_weight),
                        .dk_weight = on(dk_weight),
                        .qkv = on(qkv),
                        .rstd = on(rstd),
                        .q_weight = on(q_weight),
                        .k_weight = on(k_weight),
                        .heads = H,
                        .kv_heads = G,
                        .table = on(table),
                        .positions = on(positions),
                        .absmax = on(absmax)});
    });
    if (absmax.host) expect_absmax(t, absmax, dqkv);
    const auto terms = std::sqrt(static_cast<double>(N * H));
    t.expect_close(dqkv, "dqkv");
    t.expect_close(dq_weight, "dq_weight", terms);
    t.expect_close(dk_weight, "dk_weight", terms);
  });
}

}  // namespace lockstep::testing::heads_test

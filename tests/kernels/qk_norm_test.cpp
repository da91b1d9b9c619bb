#include "kernels/qk_norm.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "kernels/rope.h"
#include "tests/kernels/draw.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/reference_attention.h"
#include "tests/testing.h"

namespace lockstep::testing::qk_norm_test {

struct Heads {
  std::int64_t N;
  int H, G;
  std::int64_t K;
  Shape qkv() const { return {N, H + 2 * G, K}; }
  reference::RopeSetting setting() const {
    return {static_cast<std::size_t>(H + 2 * G), static_cast<std::size_t>(H + G),
            static_cast<std::size_t>(K)};
  }
};
// Not K = 1, whose gradient is zero by algebra.
const Heads kHeads[] = {{1, 1, 1, 3}, {3, 4, 2, 16}, {70, 3, 3, 33}, {40, 6, 1, 128}};
const Heads kTurned[] = {{1, 1, 1, 2}, {3, 4, 2, 16}, {70, 3, 3, 34}, {40, 6, 1, 128}};
constexpr std::int64_t kPositions = 90;

// By which angles the heads of N tokens turn; empty: they do not.
struct Turns {
  Tensor table, tensor;
  std::vector<std::int32_t> positions;

  Doubles forward(const Doubles& qkv, const Heads& s) const {
    return table ? reference::rope(qkv, doubles(table), positions, s.setting()) : qkv;
  }
  Doubles backward(const Doubles& dout, const Heads& s) const {
    return table ? reference::rope_gradient(dout, doubles(table), positions, s.setting()) : dout;
  }
};
Turns some_turns(Bench& b, const Heads& s) {
  Turns t;
  for (std::int64_t n = 0; n < s.N; ++n)
    t.positions.push_back(static_cast<std::int32_t>((n * 37 + 5) % kPositions));
  t.tensor = b.integers(t.positions);
  t.table = b.poisoned({kPositions, s.K}, DType::fp32);
  rope_table(b.stream, t.table, 10000.0f, {});
  return t;
}

// The elements of one kind of head of qkv: heads [first, first + count).
Doubles heads_of(const Doubles& qkv, const Heads& s, int first, int count) {
  Doubles part;
  const auto all = s.H + 2 * s.G;
  for (std::int64_t n = 0; n < s.N; ++n) {
    const auto from = qkv.begin() + (n * all + first) * s.K;
    part.insert(part.end(), from, from + count * s.K);
  }
  return part;
}

// The normalised heads, not turned, [N, H + 2G, K].
Doubles normed(const Doubles& qkv, const Heads& s, const Doubles& q_weight,
               const Doubles& k_weight) {
  const auto q = reference::rmsnorm(heads_of(qkv, s, 0, s.H), q_weight, 1e-5).y;
  const auto k = reference::rmsnorm(heads_of(qkv, s, s.H, s.G), k_weight, 1e-5).y;
  Doubles out = qkv;
  for (std::int64_t n = 0; n < s.N; ++n) {
    const auto token = out.begin() + n * (s.H + 2 * s.G) * s.K;
    std::copy_n(q.begin() + n * s.H * s.K, s.H * s.K, token);
    std::copy_n(k.begin() + n * s.G * s.K, s.G * s.K, token + s.H * s.K);
  }
  return out;
}

class QkNorm : public ::testing::TestWithParam<DType> {};

TEST_P(QkNorm, forward_equals_the_reference_and_copies_values) {
  for (const auto& s : kHeads)
    for (const bool in_place : {false, true}) {
      Bench b;
      const auto qkv = b.random(s.qkv(), GetParam());
      const auto q_weight = b.random({s.K}, GetParam()), k_weight = b.random({s.K}, GetParam());
      const auto rstd = b.poisoned({s.N, s.H + s.G}, DType::fp32);
      const auto out = in_place ? b.copy(qkv) : b.poisoned(s.qkv(), GetParam());
      qk_norm_forward(b.stream, {.out = out,
                                 .rstd = rstd,
                                 .qkv = in_place ? ConstTensor(out) : qkv,
                                 .q_weight = q_weight,
                                 .k_weight = k_weight,
                                 .heads = s.H,
                                 .kv_heads = s.G,
                                 .epsilon = 1e-5f});
      const auto in = doubles(qkv), got = doubles(out), rstds = doubles(rstd);
      const auto q = reference::rmsnorm(heads_of(in, s, 0, s.H), doubles(q_weight), 1e-5);
      const auto k = reference::rmsnorm(heads_of(in, s, s.H, s.G), doubles(k_weight), 1e-5);
      expect_close(heads_of(got, s, 0, s.H), q.y, tolerance(GetParam()), "q");
      expect_close(heads_of(got, s, s.H, s.G), k.y, tolerance(GetParam()), "k");
      EXPECT_EQ(heads_of(got, s, s.H + s.G, s.G), heads_of(in, s, s.H + s.G, s.G));
      for (std::int64_t n = 0; n < s.N; ++n)
        for (int h = 0; h < s.H + s.G; ++h) {
          const double expected = h < s.H ? q.rstd[static_cast<std::size_t>(n * s.H + h)]
                                          : k.rstd[static_cast<std::size_t>(n * s.G + h - s.H)];
          EXPECT_NEAR(rstds[static_cast<std::size_t>(n * (s.H + s.G) + h)], expected,
                      4e-6 * expected)
              << "token " << n << " head " << h;
        }
    }
}

TEST_P(QkNorm, backward_equals_the_reference) {
  for (const auto& s : kHeads) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam()), dout = b.random(s.qkv(), GetParam());
    const auto q_weight = b.random({s.K}, GetParam()), k_weight = b.random({s.K}, GetParam());
    const auto rstd = b.poisoned({s.N, s.H + s.G}, DType::fp32);
    const auto before = b.random({s.K}, DType::fp32);
    const auto dq_weight = b.copy(before), dk_weight = b.copy(before), dqkv = b.copy(dout);
    qk_norm_forward(b.stream, {b.poisoned(s.qkv(), GetParam()), rstd, qkv, q_weight, k_weight, s.H,
                               s.G, 1e-5f});
    qk_norm_backward(b.stream, b.arena,
                     {dqkv, dq_weight, dk_weight, qkv, rstd, q_weight, k_weight, s.H, s.G});
    const auto in = doubles(qkv), d = doubles(dout), got = doubles(dqkv);
    const auto q = reference::rmsnorm_gradient(heads_of(d, s, 0, s.H), heads_of(in, s, 0, s.H),
                                               doubles(q_weight), 1e-5);
    const auto k = reference::rmsnorm_gradient(heads_of(d, s, s.H, s.G), heads_of(in, s, s.H, s.G),
                                               doubles(k_weight), 1e-5);
    expect_close(heads_of(got, s, 0, s.H), q.ds, tolerance(GetParam()), "dq");
    expect_close(heads_of(got, s, s.H, s.G), k.ds, tolerance(GetParam()), "dk");
    EXPECT_EQ(heads_of(got, s, s.H + s.G, s.G), heads_of(d, s, s.H + s.G, s.G));
    const auto kept = doubles(before);
    expect_close(dq_weight, reference::add(kept, q.dweight), tolerance(DType::fp32), "dq_weight");
    expect_close(dk_weight, reference::add(kept, k.dweight), tolerance(DType::fp32), "dk_weight");
  }
}

// One pass rounds once: an element of bf16 is off by half a unit of its own in the last place, and
// what fp32 lost. Rounded between norm and RoPE, it could be off by that of its partner.
TEST_P(QkNorm, forward_with_a_table_turns_the_heads_and_rounds_once) {
  for (const auto& s : kTurned)
    for (const bool in_place : {false, true}) {
      Bench b;
      const auto qkv = b.random(s.qkv(), GetParam());
      const auto q_weight = b.random({s.K}, GetParam()), k_weight = b.random({s.K}, GetParam());
      const auto out = in_place ? b.copy(qkv) : b.poisoned(s.qkv(), GetParam());
      const auto turns = some_turns(b, s);
      qk_norm_forward(b.stream, {.out = out,
                                 .rstd = b.poisoned({s.N, s.H + s.G}, DType::fp32),
                                 .qkv = in_place ? ConstTensor(out) : qkv,
                                 .q_weight = q_weight,
                                 .k_weight = k_weight,
                                 .heads = s.H,
                                 .kv_heads = s.G,
                                 .epsilon = 1e-5f,
                                 .table = turns.table,
                                 .positions = turns.tensor});
      const auto expected =
          turns.forward(normed(doubles(qkv), s, doubles(q_weight), doubles(k_weight)), s);
      const auto got = doubles(out);
      double largest = 0;
      for (const double e : expected)
        largest = std::max(largest, std::abs(e));
      const double half_unit = GetParam() == DType::bf16 ? 0x1p-8 : 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_LE(std::abs(got[i] - expected[i]),
                  half_unit * std::abs(expected[i]) + tolerance(DType::fp32) * largest)
            << "element " << i << " of " << s.qkv();
    }
}

TEST_P(QkNorm, backward_with_a_table_equals_the_reference) {
  for (const auto& s : kTurned) {
    Bench b;
    const auto qkv = b.random(s.qkv(), GetParam()), dqkv = b.random(s.qkv(), GetParam());
    const auto q_weight = b.random({s.K}, GetParam()), k_weight = b.random({s.K}, GetParam());
    const auto rstd = b.poisoned({s.N, s.H + s.G}, DType::fp32);
    const auto dq_weight = b.copy(b.random({s.K}, DType::fp32, 0.0f)),
               dk_weight = b.copy(dq_weight);
    const auto turns = some_turns(b, s);
    const auto in = doubles(qkv), dout = doubles(dqkv), d = turns.backward(dout, s);
    qk_norm_forward(b.stream, {b.poisoned(s.qkv(), GetParam()), rstd, qkv, q_weight, k_weight, s.H,
                               s.G, 1e-5f, turns.table, turns.tensor});
    qk_norm_backward(b.stream, b.arena,
                     {dqkv, dq_weight, dk_weight, qkv, rstd, q_weight, k_weight, s.H, s.G,
                      turns.table, turns.tensor});
    const auto got = doubles(dqkv);
    const auto q = reference::rmsnorm_gradient(heads_of(d, s, 0, s.H), heads_of(in, s, 0, s.H),
                                               doubles(q_weight), 1e-5);
    const auto k = reference::rmsnorm_gradient(heads_of(d, s, s.H, s.G), heads_of(in, s, s.H, s.G),
                                               doubles(k_weight), 1e-5);
    expect_close(heads_of(got, s, 0, s.H), q.ds, tolerance(GetParam()), "dq");
    expect_close(heads_of(got, s, s.H, s.G), k.ds, tolerance(GetParam()), "dk");
    EXPECT_EQ(heads_of(got, s, s.H + s.G, s.G), heads_of(dout, s, s.H + s.G, s.G));
    expect_close(dq_weight, q.dweight, tolerance(DType::fp32), "dq_weight");
    expect_close(dk_weight, k.dweight, tolerance(DType::fp32), "dk_weight");
  }
}

TEST_P(QkNorm, results_do_not_depend_on_the_thread_count) {
  const Heads s{100, 4, 2, 40};
  Bench b;
  const auto turns = some_turns(b, s);
  const auto qkv = b.random(s.qkv(), GetParam()), dout = b.random(s.qkv(), GetParam());
  const auto weight = b.random({s.K}, GetParam());
  const auto rstd = b.random({s.N, s.H + s.G}, DType::fp32);
  Tensor first_dqkv, first_dweight;
  for (const int threads : {1, 2, 3}) {
    Stream stream{Device{}, "threads", Stream::Mode::immediate, threads};
    const auto dqkv = b.copy(dout), dweight = b.random({s.K}, DType::fp32, 0.0f);
    qk_norm_backward(stream, b.arena,
                     {dqkv, dweight, b.random({s.K}, DType::fp32), qkv, rstd, weight, weight, s.H,
                      s.G, turns.table, turns.tensor});
    if (threads == 1) {
      first_dqkv = dqkv;
      first_dweight = dweight;
    }
    expect_bitwise_equal(dqkv, first_dqkv, "dqkv");
    expect_bitwise_equal(dweight, first_dweight, "dweight");
  }
}

void check_random(Draw& draw, DType dtype) {
  const auto G = static_cast<int>(draw.between(1, 4));
  const bool turned = draw.coin();
  const Heads s{draw.size(100), G * static_cast<int>(draw.between(1, 5)), G,
                turned ? 2 * draw.size(100) : draw.size(200)};
  SCOPED_TRACE(str("qkv ", s.qkv(), " H ", s.H, turned ? " turned" : ""));
  auto b = draw.bench();
  const auto turns = turned ? some_turns(b, s) : Turns{};
  const auto in = b.random(s.qkv(), dtype);
  const auto q_weight = b.random({s.K}, dtype), k_weight = b.random({s.K}, dtype);
  const auto rstd = b.poisoned({s.N, s.H + s.G}, DType::fp32);
  const auto out = b.poisoned(s.qkv(), dtype);
  qk_norm_forward(b.stream,
                  {out, rstd, in, q_weight, k_weight, s.H, s.G, 1e-5f, turns.table, turns.tensor});
  const auto dqkv = b.random(s.qkv(), dtype);
  const auto dq_weight = b.random({s.K}, DType::fp32), dk_weight = b.random({s.K}, DType::fp32);
  const auto dout = doubles(dqkv), q_before = doubles(dq_weight), k_before = doubles(dk_weight);
  const auto d = turns.backward(dout, s);
  const auto absmax = b.poisoned({1}, DType::fp32);
  qk_norm_backward(b.stream, b.arena,
                   {dqkv, dq_weight, dk_weight, in, rstd, q_weight, k_weight, s.H, s.G, turns.table,
                    turns.tensor, absmax});
  expect_absmax(absmax, dqkv);

  const auto y = turns.forward(normed(doubles(in), s, doubles(q_weight), doubles(k_weight)), s);
  const auto check = [&](ConstTensor weight, ConstTensor dweight, const Doubles& before, int first,
                         int count) {
    const auto part = [&](const Doubles& all) { return heads_of(all, s, first, count); };
    const auto x = part(doubles(in));
    const auto expected = reference::rmsnorm(x, doubles(weight), 1e-5);
    expect_close(part(doubles(out)), part(y), tolerance(dtype), "out", 1);
    const auto g = reference::rmsnorm_gradient(part(d), x, doubles(weight), 1e-5);
    // Heads of one element have no gradient, by algebra.
    expect_close(part(doubles(dqkv)), g.ds, tolerance(dtype), "dqkv",
                 *std::max_element(expected.rstd.begin(), expected.rstd.end()));
    expect_close(dweight, reference::add(before, g.dweight), tolerance(DType::fp32), "dweight",
                 std::sqrt(static_cast<double>(s.N * count)));
  };
  check(q_weight, dq_weight, q_before, 0, s.H);
  check(k_weight, dk_weight, k_before, s.H, s.G);
  EXPECT_EQ(heads_of(doubles(out), s, s.H + s.G, s.G), heads_of(doubles(in), s, s.H + s.G, s.G));
  EXPECT_EQ(heads_of(doubles(dqkv), s, s.H + s.G, s.G), heads_of(dout, s, s.H + s.G, s.G));
}
TEST_P(QkNorm, random_shapes_equal_the_reference) {
  few_draws([](Draw& draw) { check_random(draw, GetParam()); });
}
TEST_P(QkNorm, full_random_shapes_equal_the_reference) {
  many_draws([](Draw& draw) { check_random(draw, GetParam()); });
}

TEST(QkNormContract, the_reference_gradient_with_a_table_is_the_derivative_of_the_reference) {
  Bench b;
  const Heads s{3, 2, 1, 6};
  auto qkv = doubles(b.random(s.qkv(), DType::fp32));
  auto weight = doubles(b.random({s.K}, DType::fp32));
  const auto dout = doubles(b.random(s.qkv(), DType::fp32));
  const auto turns = some_turns(b, s);
  const auto loss = [&] {
    return reference::dot(dout, turns.forward(normed(qkv, s, weight, weight), s));
  };
  const auto d = turns.backward(dout, s);
  const auto part = [&](const Doubles& all) { return heads_of(all, s, 0, s.H + s.G); };
  const auto g = reference::rmsnorm_gradient(part(d), part(qkv), weight, 1e-5);
  expect_close(g.ds, part(finite_differences(qkv, loss)), 1e-7, "dqkv");
  expect_close(g.dweight, finite_differences(weight, loss), 1e-7, "dweight");
}

TEST(QkNormContract, a_table_that_does_not_fit_is_refused_by_name) {
  Bench b;
  const auto call = [&](std::int64_t K, const Shape& table, const std::vector<std::int32_t>& at) {
    const auto qkv = b.random({3, 4, K}, DType::fp32), weight = b.random({K}, DType::fp32);
    const auto rstd = b.random({3, 3}, DType::fp32);
    const auto positions = at.empty() ? Tensor{} : b.integers(at);
    try {
      qk_norm_forward(b.stream, {qkv, rstd, qkv, weight, weight, 2, 1, 1e-6f,
                                 b.random(table, DType::fp32), positions});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const auto expect = [](const std::string& said, const std::string& part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  EXPECT_EQ(call(8, {5, 8}, {0, 4, 2}), "accepted");
  expect(call(8, {5, 6}, {0, 4, 2}), "table is [5, 6], expected [5, 8]");
  expect(call(7, {5, 7}, {0, 4, 2}), "qkv is [3, 4, 7], expected [N, 4, K] with K even");
  expect(call(8, {5, 8}, {0, 5, 2}), "positions[1] is 5, but the rope table has rows 0 to 4");
  expect(call(8, {5, 8}, {}), "a rope table comes with positions");
}

TEST(QkNormContract, a_shape_that_does_not_fit_is_refused_by_name) {
  Bench b;
  const auto qkv = b.random({3, 4, 8}, DType::fp32), weight = b.random({8}, DType::fp32);
  const auto call = [&](const Shape& rstd, int heads) {
    try {
      qk_norm_forward(b.stream,
                      {qkv, b.random(rstd, DType::fp32), qkv, weight, weight, heads, 1, 1e-6f});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(call({3, 3}, 2), "accepted");
  EXPECT_NE(call({3, 4}, 2).find("rstd is [3, 4], expected [3, 3]"), std::string::npos);
  EXPECT_NE(call({3, 3}, 3).find("qkv is [3, 4, 8], expected [N, 5, K]"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(types, QkNorm, kFloatTypes, dtype_name);

}  // namespace lockstep::testing::qk_norm_test

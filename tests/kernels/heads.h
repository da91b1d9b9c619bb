// Shared by the tests of RoPE and qk-norm: the heads of qkv [N, H + 2G, K], their angles of
// rotation, and the reference of qk-norm.
#pragma once

#include "tests/kernels/operator_case.h"
#include "tests/kernels/reference_attention.h"

namespace lockstep::testing {

struct Heads {
  std::int64_t N, H, G, K;
  explicit Heads(const Sizes& s) : N(s[0]), H(s[1]), G(s[2]), K(s[3]) {}

  Shape qkv() const { return {N, H + 2 * G, K}; }
  reference::RopeSetting setting() const {
    return {static_cast<std::size_t>(H + 2 * G), static_cast<std::size_t>(H + G),
            static_cast<std::size_t>(K)};
  }
  // The elements of heads [first, first + count) of x, shaped like qkv; and back.
  Doubles part(const Doubles& x, std::int64_t first, std::int64_t count) const {
    Doubles some;
    for (std::int64_t n = 0; n < N; ++n) {
      const auto from = x.begin() + (n * (H + 2 * G) + first) * K;
      some.insert(some.end(), from, from + count * K);
    }
    return some;
  }
  void set_part(Doubles& x, std::int64_t first, std::int64_t count, const Doubles& some) const {
    for (std::int64_t n = 0; n < N; ++n)
      std::copy_n(some.begin() + n * count * K, count * K,
                  x.begin() + (n * (H + 2 * G) + first) * K);
  }
};

// A context so short that all three regions of frequencies occur at any head size.
constexpr RopeScaling kShortScaling{
    .factor = 8, .low_factor = 1, .high_factor = 4, .original_context = 64};

// Turns holds the angles of rotation of the heads of N tokens. Without operands, heads are not
// rotated.
struct Turns {
  Turns() = default;
  Turns(Operator& o, const Heads& s, const std::optional<RopeScaling>& scaling)
      : rows(o.draw.between(1, most({.cpu = 500, .simulated = 40, .real = 8192}))),
        at(draw_below(o.draw, s.N, rows)) {
    const auto made = o.b.poisoned({rows, s.K}, DType::fp32);
    rope_table(o.b.stream, made, 10000.0f, scaling);
    table = o.input(made);
    positions = o.integers(at);
    angles = o[table];
  }

  Doubles forward(const Doubles& qkv, const Heads& s) const {
    return table ? reference::rope(qkv, angles, at, s.setting()) : qkv;
  }
  Doubles backward(const Doubles& dout, const Heads& s) const {
    return table ? reference::rope_gradient(dout, angles, at, s.setting()) : dout;
  }

  std::int64_t rows = 0;
  std::vector<std::int32_t> at;
  Operand table, positions;
  Doubles angles;
};

namespace reference {

struct QkNormResult {
  Doubles out, rstd;  // not rotated; [N, H + G]
};
inline QkNormResult qk_norm(const Doubles& qkv, const Heads& s, const Doubles& q_weight,
                            const Doubles& k_weight, double epsilon = 1e-5) {
  const auto q = rmsnorm(s.part(qkv, 0, s.H), q_weight, epsilon);
  const auto k = rmsnorm(s.part(qkv, s.H, s.G), k_weight, epsilon);
  QkNormResult r{qkv, {}};
  s.set_part(r.out, 0, s.H, q.y);
  s.set_part(r.out, s.H, s.G, k.y);
  for (std::int64_t n = 0; n < s.N; ++n) {
    r.rstd.insert(r.rstd.end(), q.rstd.begin() + n * s.H, q.rstd.begin() + (n + 1) * s.H);
    r.rstd.insert(r.rstd.end(), k.rstd.begin() + n * s.G, k.rstd.begin() + (n + 1) * s.G);
  }
  return r;
}

struct QkNormGradient {
  Doubles dqkv, dq_weight, dk_weight;
};
// `dout` is rotated back. Values keep their gradient.
inline QkNormGradient qk_norm_gradient(const Doubles& dout, const Doubles& qkv, const Heads& s,
                                       const Doubles& q_weight, const Doubles& k_weight) {
  const auto q = rmsnorm_gradient(s.part(dout, 0, s.H), s.part(qkv, 0, s.H), q_weight, 1e-5);
  const auto k = rmsnorm_gradient(s.part(dout, s.H, s.G), s.part(qkv, s.H, s.G), k_weight, 1e-5);
  QkNormGradient g{dout, q.dweight, k.dweight};
  s.set_part(g.dqkv, 0, s.H, q.ds);
  s.set_part(g.dqkv, s.H, s.G, k.ds);
  return g;
}

}  // namespace reference

}  // namespace lockstep::testing

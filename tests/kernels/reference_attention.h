// The naive float64 reference of attention, RoPE and qk-norm. Each gradient here is itself checked
// by finite differences in the operator's test.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "kernels/rope.h"
#include "tests/kernels/reference.h"

namespace lockstep::testing::reference {

// qkv [B T, H + 2G, K]
struct AttentionShape {
  std::int64_t B = 1, T = 1, H = 1, G = 1, K = 1;
  std::int64_t tokens() const { return B * T; }
  std::int64_t heads() const { return H + 2 * G; }
  std::size_t query(std::int64_t n, std::int64_t h) const { return index(n, h); }
  std::size_t key(std::int64_t n, std::int64_t h) const { return index(n, H + h / (H / G)); }
  std::size_t value(std::int64_t n, std::int64_t h) const { return index(n, H + G + h / (H / G)); }
  std::size_t output(std::int64_t n, std::int64_t h) const {
    return static_cast<std::size_t>((n * H + h) * K);
  }
  std::size_t lse_at(std::int64_t n, std::int64_t h) const {
    return static_cast<std::size_t>((n / T * H + h) * T + n % T);
  }
  Shape lse() const { return {B, H, T}; }
  Shape qkv() const { return {tokens(), heads(), K}; }
  Shape out() const { return {tokens(), H, K}; }

 private:
  std::size_t index(std::int64_t n, std::int64_t head) const {
    return static_cast<std::size_t>((n * heads() + head) * K);
  }
};

// Query token n attends to key tokens [first, n] of the batch; to none if first > n.
using FirstKeys = std::vector<std::int32_t>;  // document_start, [B, T]

inline double dot_at(const Doubles& a, std::size_t i, const Doubles& b, std::size_t j,
                     std::int64_t K) {
  double sum = 0;
  for (std::size_t k = 0; k < static_cast<std::size_t>(K); ++k)
    sum += a[i + k] * b[j + k];
  return sum;
}

inline void add_at(Doubles& y, std::size_t i, double factor, const Doubles& x, std::size_t j,
                   std::int64_t K) {
  for (std::size_t k = 0; k < static_cast<std::size_t>(K); ++k)
    y[i + k] += factor * x[j + k];
}

struct AttentionResult {
  Doubles out, lse;  // [B T, H, K], [B, H, T]
};
inline AttentionResult attention(const Doubles& qkv, const FirstKeys& starts, AttentionShape s) {
  AttentionResult r{Doubles(static_cast<std::size_t>(s.out().elements())),
                    Doubles(static_cast<std::size_t>(s.H * s.tokens()))};
  for (std::int64_t h = 0; h < s.H; ++h)
    for (std::int64_t n = 0; n < s.tokens(); ++n) {
      const auto first = n / s.T * s.T + starts[static_cast<std::size_t>(n)];
      Doubles exponents;
      for (auto j = first; j <= n; ++j)
        exponents.push_back(dot_at(qkv, s.query(n, h), qkv, s.key(j, h), s.K) /
                            std::sqrt(static_cast<double>(s.K)));
      if (exponents.empty()) {  // out stays 0
        r.lse[s.lse_at(n, h)] = -std::numeric_limits<double>::infinity();
        continue;
      }
      const double high = *std::max_element(exponents.begin(), exponents.end());
      double sum = 0;
      for (auto& e : exponents)
        sum += e = std::exp(e - high);
      r.lse[s.lse_at(n, h)] = high + std::log(sum);
      for (auto j = first; j <= n; ++j)
        add_at(r.out, s.output(n, h), exponents[static_cast<std::size_t>(j - first)] / sum, qkv,
               s.value(j, h), s.K);
    }
  return r;
}

// The gradient of qkv for the gradient dout of out.
inline Doubles attention_gradient(const Doubles& dout, const Doubles& qkv, const FirstKeys& starts,
                                  AttentionShape s) {
  const auto [out, lse] = attention(qkv, starts, s);
  const double scale = 1 / std::sqrt(static_cast<double>(s.K));
  Doubles dqkv(qkv.size());
  for (std::int64_t h = 0; h < s.H; ++h)
    for (std::int64_t n = 0; n < s.tokens(); ++n) {
      const auto q = s.query(n, h), o = s.output(n, h);
      const double mean = dot_at(dout, o, out, o, s.K);
      for (auto j = n / s.T * s.T + starts[static_cast<std::size_t>(n)]; j <= n; ++j) {
        const auto k = s.key(j, h), v = s.value(j, h);
        const double p = std::exp(scale * dot_at(qkv, q, qkv, k, s.K) - lse[s.lse_at(n, h)]);
        const double ds = p * (dot_at(dout, o, qkv, v, s.K) - mean) * scale;
        add_at(dqkv, v, p, dout, o, s.K);
        add_at(dqkv, k, ds, qkv, q, s.K);
        add_at(dqkv, q, ds, qkv, k, s.K);
      }
    }
  return dqkv;
}

// theta^(-2i/K). With scaling, a frequency with few turns in the original context is divided by
// `factor`, one with many turns stays, and those between are blended.
inline double rope_frequency(double i, std::int64_t K, double theta,
                             const std::optional<RopeScaling>& scaling) {
  const double f = std::pow(theta, -2 * i / static_cast<double>(K));
  if (!scaling) return f;
  const double turns = scaling->original_context * f / (2 * std::numbers::pi);
  const auto low = static_cast<double>(scaling->low_factor),
             high = static_cast<double>(scaling->high_factor);
  const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
  return kept * f + (1 - kept) * f / static_cast<double>(scaling->factor);
}

// cos(p f_i), sin(p f_i): [P, K], with f_i the frequencies.
inline Doubles rope_table(std::int64_t P, std::int64_t K, double theta,
                          const std::optional<RopeScaling>& scaling = {}) {
  Doubles table;
  for (std::int64_t p = 0; p < P; ++p)
    for (std::int64_t k = 0; k < K; ++k) {
      const auto i = static_cast<double>(k % (K / 2));
      const double angle = static_cast<double>(p) * rope_frequency(i, K, theta, scaling);
      table.push_back(k < K / 2 ? std::cos(angle) : std::sin(angle));
    }
  return table;
}

// Table [P, K] rotates the first `rotated` heads of qkv [N, heads, K].
struct RopeSetting {
  std::size_t heads, rotated, K;
};

// Calls visit(a, b, cosine, sine) for each pair of elements that are rotated together.
template <class Visit>
void for_each_rope_pair(const Doubles& table, const std::vector<std::int32_t>& positions,
                        RopeSetting s, Visit&& visit) {
  for (std::size_t n = 0; n < positions.size(); ++n)
    for (std::size_t h = 0; h < s.rotated; ++h)
      for (std::size_t i = 0; i < s.K / 2; ++i) {
        const auto a = (n * s.heads + h) * s.K + i;
        const auto row = static_cast<std::size_t>(positions[n]) * s.K + i;
        visit(a, a + s.K / 2, table[row], table[row + s.K / 2]);
      }
}

inline Doubles rope(const Doubles& qkv, const Doubles& table,
                    const std::vector<std::int32_t>& positions, RopeSetting s) {
  Doubles out = qkv;
  for_each_rope_pair(table, positions, s,
                     [&](std::size_t a, std::size_t b, double cosine, double sine) {
                       out[a] = qkv[a] * cosine - qkv[b] * sine;
                       out[b] = qkv[b] * cosine + qkv[a] * sine;
                     });
  return out;
}

// The gradient of qkv for the gradient dout of rope's result.
inline Doubles rope_gradient(const Doubles& dout, const Doubles& table,
                             const std::vector<std::int32_t>& positions, RopeSetting s) {
  Doubles dqkv = dout;
  for_each_rope_pair(table, positions, s,
                     [&](std::size_t a, std::size_t b, double cosine, double sine) {
                       dqkv[a] = dout[a] * cosine + dout[b] * sine;
                       dqkv[b] = dout[b] * cosine - dout[a] * sine;
                     });
  return dqkv;
}

}  // namespace lockstep::testing::reference

// This file defines vectors of 16 floats (simd_lanes.h), their loads and stores in fp32 and bf16,
// and the functions that kernels share. Streams flush denormals, so none of these functions handles
// them unless its comment states it. Only cpu_begin.h includes this file.
#pragma once

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {

inline constexpr int kLanes = 16;

using Floats = Lanes<float, kLanes>;
using Ints = Lanes<std::int32_t, kLanes>;

LOCKSTEP_INLINE Floats splat(float x) {
  return splat<float, kLanes>(x);
}

LOCKSTEP_INLINE Floats load(const float* p) {
  return load_lanes<Floats>(p);
}
LOCKSTEP_INLINE void store(float* p, Floats v) {
  store_lanes(p, v);
}

LOCKSTEP_INLINE Floats load(const BFloat16* p) {
  return bits_as<float>(widen_lanes<Words>(&p->bits) << 16);
}
// Rounds to nearest, ties to even; NaN stays NaN. The bits are those of to_bf16 (core/dtype.h),
// also for denormals.
LOCKSTEP_INLINE Words round_to_bf16(Floats v) {
  const Words u = bits_as<std::uint32_t>(v);
  const Words rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return select(v != v, (u >> 16) | 0x40u, rounded);
}
// Rounds like round_to_bf16, but denormals may become 0.
LOCKSTEP_INLINE void store(BFloat16* p, Floats v) {
#if LOCKSTEP_CPU_LEVEL >= 3
  const auto rounded = _mm512_cvtneps_pbh((__m512)v.v);
  __builtin_memcpy(static_cast<void*>(p), &rounded, sizeof rounded);
#else
  narrow(&p->bits, round_to_bf16(v));
#endif
}

LOCKSTEP_INLINE void store_one(float* p, float x) {
  *p = x;
}
LOCKSTEP_INLINE void store_one(BFloat16* p, float x) {
  *p = to_bf16(x);
}

// load_first and store_first access the first n < kLanes elements; the rest read as 0 and are not
// written.
template <class T>
LOCKSTEP_INLINE Floats load_first(const T* p, std::int64_t n) {
  T buffer[kLanes] = {};
  __builtin_memcpy(static_cast<void*>(buffer), p, static_cast<std::size_t>(n) * sizeof(T));
  return load(buffer);
}
template <class T>
LOCKSTEP_INLINE void store_first(T* p, Floats v, std::int64_t n) {
  T buffer[kLanes];
  store(buffer, v);
  __builtin_memcpy(static_cast<void*>(p), buffer, static_cast<std::size_t>(n) * sizeof(T));
}
template <class T>
LOCKSTEP_INLINE Floats load(const T* p, std::int64_t n) {
  return n == kLanes ? load(p) : load_first(p, n);
}
template <class T>
LOCKSTEP_INLINE void store(T* p, Floats v, std::int64_t n) {
  if (n == kLanes)
    store(p, v);
  else
    store_first(p, v, n);
}

// Returns v with the lanes from n on set to 0.
LOCKSTEP_INLINE Floats first_lanes(Floats v, std::int64_t n) {
  static constexpr std::int32_t kLane[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                 8, 9, 10, 11, 12, 13, 14, 15};
  return select(load_lanes<Ints>(kLane) < static_cast<std::int32_t>(n), v, Floats{});
}

// max and min return b if one is NaN (as maxps and minps do).
LOCKSTEP_INLINE Floats max(Floats a, Floats b) {
  return select(a > b, a, b);
}
LOCKSTEP_INLINE Floats min(Floats a, Floats b) {
  return select(a < b, a, b);
}
LOCKSTEP_INLINE Floats abs(Floats a) {
  return bits_as<float>(bits_as<std::uint32_t>(a) & 0x7fffffffu);
}
LOCKSTEP_INLINE Floats sqrt(Floats a) {
  const auto f = [](auto v) {
    for (std::size_t i = 0; i < sizeof v / sizeof v[0]; ++i)
      v[i] = __builtin_sqrtf(v[i]);
    return v;
  };
  return map(f, a);
}

// total and largest return the sum and the maximum of the lanes.
LOCKSTEP_INLINE float total(Floats v) {
  return fold([](auto x, auto y) { return x + y; }, v);
}
LOCKSTEP_INLINE float largest(Floats v) {
  return fold([](auto x, auto y) { return x > y ? x : y; }, v);
}

// Rounds to the nearest integer, ties to even, for |x| < 2^22.
LOCKSTEP_INLINE Floats round_to_integer(Floats x) {
  const float magic = 0x1.8p23f;
  return (x + magic) - magic;
}

// Returns y * 2^n for integers n; 0 if that is denormal.
LOCKSTEP_INLINE Floats scale_by_power(Floats y, Floats n) {
#if LOCKSTEP_CPU_LEVEL >= 2
  return {(Floats::Vector)_mm512_maskz_scalef_ps(0xffff, (__m512)y.v, (__m512)n.v)};
#else
  const Ints exponent = (convert_to<std::int32_t>(n) + 127) << 23;
  return select(n < -126.0f, Floats{}, y * bits_as<float>(exponent));
#endif
}

// Computes e^x with a relative error below 2e-7 (tests/kernels/simd_test.cpp). It is 0 below -87.7
// and clamped above 88.3; NaN stays NaN.
// x = n ln2 + r, |r| <= ln2 / 2; e^r = 1 + r + r^2 p(r), p minimax of degree 4.
LOCKSTEP_INLINE Floats exp(Floats x) {
  x = min(splat(88.3f), max(splat(-88.0f), x));  // in this order NaN passes
  const Floats n = round_to_integer(x * 1.44269504f);
  Floats r = x - n * 0.693359375f;  // ln2 in two parts: the first has 9 bits, so n * it is exact
  r = r + n * 2.12194440e-4f;
  Floats p = splat(1.38145402e-3f);
  p = p * r + 8.36874511e-3f;
  p = p * r + 4.16683908e-2f;
  p = p * r + 1.66665204e-1f;
  p = p * r + 4.99999934e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return scale_by_power(p, n);
}

LOCKSTEP_INLINE Floats sigmoid(Floats x) {
  return 1.0f / (1.0f + exp(-x));
}

// Sigmoid is s = sigmoid(x) and its derivative s (1 - s). This keeps its relative accuracy, because
// 1 - s = e^-x s.
struct Sigmoid {
  Floats value, slope;
};
LOCKSTEP_INLINE Sigmoid sigmoid_and_slope(Floats x) {
  const Floats e = exp(-x);
  const Floats s = 1.0f / (1.0f + e);
  return {s, e * s * s};
}

// gelu computes x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3); gelu_slope its derivative.
// (1 + tanh u) / 2 = sigmoid(2u) keeps its relative accuracy even if 1 + tanh u cancels.
LOCKSTEP_INLINE Floats gelu(Floats x) {
  return x * sigmoid(x * (1.5957691216f + 0.0713548163f * x * x));
}
LOCKSTEP_INLINE Floats gelu_slope(Floats x) {
  const auto s = sigmoid_and_slope(x * (1.5957691216f + 0.0713548163f * x * x));
  return s.value + x * s.slope * (1.5957691216f + 0.2140644489f * x * x);
}

// Calls f(i, n) for the vectors of [0, size), with n = kLanes, or fewer for the elements after the
// last whole vector.
template <class F>
LOCKSTEP_INLINE void for_vectors(std::int64_t size, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    f(i, std::int64_t{kLanes});
  if (i < size) f(i, size - i);
}

// Returns the sum of f(i, n) over the vectors of [0, size). Lanes of f(i, n) from n on are 0. Four
// accumulators, added in a fixed order, let additions overlap.
template <class F>
LOCKSTEP_INLINE Floats sum_vectors(std::int64_t size, F&& f) {
  Floats a{}, b{}, c{}, d{};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    a += f(i, std::int64_t{kLanes});
    b += f(i + kLanes, std::int64_t{kLanes});
    c += f(i + 2 * kLanes, std::int64_t{kLanes});
    d += f(i + 3 * kLanes, std::int64_t{kLanes});
  }
  for (; i + kLanes <= size; i += kLanes)
    a += f(i, std::int64_t{kLanes});
  if (i < size) b += f(i, size - i);
  return (a + b) + (c + d);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

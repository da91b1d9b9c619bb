// Simd: vectors of 16 floats in GCC's vector extension, which the compiler maps to one zmm, two
// ymm, four xmm or four NEON registers; so a kernel is written once and sums in the same order on
// every processor. Included by cpu_begin.h only, for one instruction set at a time.

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {

inline constexpr int kLanes = 16;

using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));
using Halves = std::uint16_t __attribute__((vector_size(32)));

#define LOCKSTEP_INLINE static inline __attribute__((always_inline, unused))

LOCKSTEP_INLINE Floats splat(float x) {
  return x - Floats{};  // and not +, which would lose the sign of -0
}

// v with lanes n and behind set to 0.
LOCKSTEP_INLINE Floats first_lanes(Floats v, std::int64_t n) {
  const Ints lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return lane < static_cast<std::int32_t>(n) ? v : Floats{};
}

LOCKSTEP_INLINE Floats load(const float* p) {
  Floats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
LOCKSTEP_INLINE void store(float* p, Floats v) {
  __builtin_memcpy(p, &v, sizeof v);
}

LOCKSTEP_INLINE Floats load(const BFloat16* p) {
  Halves h;
  __builtin_memcpy(&h, p, sizeof h);
  return (Floats)(__builtin_convertvector(h, Words) << 16);
}
// Rounds to nearest, ties to even; NaN stays NaN. The same bits as to_bf16 (core/dtype.h).
LOCKSTEP_INLINE Halves round_to_bf16(Floats v) {
  const Words u = (Words)v;
  const Words rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const Words quiet = (u >> 16) | 0x40u;
  return __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, Halves);
}
LOCKSTEP_INLINE void store(BFloat16* p, Floats v) {
  const Halves h = round_to_bf16(v);
  __builtin_memcpy(p, &h, sizeof h);
}

LOCKSTEP_INLINE void store_one(float* p, float x) {
  *p = x;
}
LOCKSTEP_INLINE void store_one(BFloat16* p, float x) {
  *p = to_bf16(x);
}

// The first n < kLanes elements; the rest read as 0 and are not written.
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
  __builtin_memcpy(p, buffer, static_cast<std::size_t>(n) * sizeof(T));
}

// Where a is NaN, b; where b is NaN, b (as maxps and minps do).
LOCKSTEP_INLINE Floats max(Floats a, Floats b) {
  return a > b ? a : b;
}
LOCKSTEP_INLINE Floats min(Floats a, Floats b) {
  return a < b ? a : b;
}
LOCKSTEP_INLINE Floats abs(Floats a) {
  return (Floats)((Words)a & 0x7fffffffu);
}

// Horizontal sum and maximum, in a fixed tree: lanes i and i + 8, then + 4, + 2, + 1.
LOCKSTEP_INLINE float total(Floats v) {
  float a[kLanes];
  store(a, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      a[i] += a[i + width];
  return a[0];
}
LOCKSTEP_INLINE float largest(Floats v) {
  float a[kLanes];
  store(a, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      a[i] = a[i] > a[i + width] ? a[i] : a[i + width];
  return a[0];
}

// Nearest integer, ties to even, for |x| < 2^22.
LOCKSTEP_INLINE Floats round_to_integer(Floats x) {
  const float magic = 0x1.8p23f;
  return (x + magic) - magic;
}

// e^x, relative error below 2e-7 (tests/kernels/simd_test.cpp); 0 below -87.3, clamped above 88.3;
// NaN stays NaN.
// x = n ln2 + r, |r| <= ln2 / 2, e^r by its Taylor polynomial of degree 7.
LOCKSTEP_INLINE Floats exp(Floats x) {
  const auto tiny = x < -87.3f;
  x = min(splat(88.3f), max(splat(-87.3f), x));
  const Floats n = round_to_integer(x * 1.44269504f);
  Floats r = x - n * 0.693359375f;  // ln2 in two parts: the first has 9 bits, so n * it is exact
  r = r + n * 2.12194440e-4f;
  Floats p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Ints exponent = (__builtin_convertvector(n, Ints) + 127) << 23;
  const Floats y = p * (Floats)exponent;
  return tiny ? Floats{} : y;
}

// tanh x = 1 - 2 / (e^2x + 1); near 0, where that cancels, its odd polynomial.
LOCKSTEP_INLINE Floats tanh(Floats x) {
  const Floats e = exp(x + x);
  const Floats far = 1.0f - 2.0f / (e + 1.0f);
  const Floats s = x * x;
  Floats p = splat(-5.70498872745e-3f);  // Cephes tanhf, |x| < 0.625
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  const Floats near = x + x * s * p;
  return abs(x) < 0.625f ? near : far;
}

LOCKSTEP_INLINE Floats sigmoid(Floats x) {
  return 1.0f / (1.0f + exp(-x));
}

LOCKSTEP_INLINE Floats sqrt(Floats x) {
  for (int i = 0; i < kLanes; ++i)
    x[i] = __builtin_sqrtf(x[i]);
  return x;
}

// s = sigmoid(x) and s (1 - s), its derivative, which keeps its relative accuracy: 1 - s = e^-x s.
struct Sigmoid {
  Floats value, slope;
};
LOCKSTEP_INLINE Sigmoid sigmoid_and_slope(Floats x) {
  const Floats e = exp(-x);
  const Floats s = 1.0f / (1.0f + e);
  return {s, e * s * s};
}

// gelu(x) = x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3), and its derivative.
// (1 + tanh u) / 2 = sigmoid(2u) keeps its relative accuracy where 1 + tanh u cancels.
LOCKSTEP_INLINE Floats gelu(Floats x) {
  return x * sigmoid(x * (1.5957691216f + 0.0713548163f * x * x));
}
LOCKSTEP_INLINE Floats gelu_slope(Floats x) {
  const auto s = sigmoid_and_slope(x * (1.5957691216f + 0.0713548163f * x * x));
  return s.value + x * s.slope * (1.5957691216f + 0.2140644489f * x * x);
}

// Calls f(i, n) for the vectors of [0, size): n = kLanes, and once fewer for what is left.
template <class F>
LOCKSTEP_INLINE void for_vectors(std::int64_t size, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes)
    f(i, std::int64_t{kLanes});
  if (i < size) f(i, size - i);
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

// Sum of f(i, n) (a vector of which the first n lanes count; the others are 0) over the vectors of
// [0, size), in four accumulators of fixed order, so that additions overlap.
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
  for (; i < size; i += kLanes)
    a += f(i, size - i < kLanes ? size - i : std::int64_t{kLanes});
  return (a + b) + (c + d);
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

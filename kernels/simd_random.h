// SimdRandom: Philox (core/philox.h) for eight draws at a time, and what turns its words into
// normal numbers and into stochastic rounding. Included by cpu_begin.h only.

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {

using Longs = std::uint64_t __attribute__((vector_size(64)));

// Product of the lower halves of the lanes of a with m; the upper halves of a may hold anything.
LOCKSTEP_INLINE Longs multiply_lower(Longs a, std::uint32_t m) {
#if defined(__AVX512F__)
  return (Longs)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(m));
#elif defined(__AVX2__)
  __m256i half[2];
  __builtin_memcpy(half, &a, sizeof a);
  for (auto& h : half)
    h = _mm256_mul_epu32(h, _mm256_set1_epi64x(m));
  __builtin_memcpy(&a, half, sizeof a);
  return a;
#elif defined(__SSE2__)
  __m128i quarter[4];
  __builtin_memcpy(quarter, &a, sizeof a);
  for (auto& q : quarter)
    q = _mm_mul_epu32(q, _mm_set1_epi64x(m));
  __builtin_memcpy(&a, quarter, sizeof a);
  return a;
#else
  return (a & 0xffffffffu) * m;
#endif
}

// Eight draws: lane i has the words of philox(key, counter_high, counter_low[i]) in the lower
// halves of its four Longs.
struct PhiloxLanes {
  Longs word[4];
};
LOCKSTEP_INLINE PhiloxLanes philox_lanes(std::uint64_t key, std::uint64_t counter_high,
                                         Longs counter_low) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  Longs c0 = counter_low, c1 = counter_low >> 32;
  Longs c2 = Longs{} + counter_high, c3 = c2 >> 32;
  for (int round = 0; round < 10; ++round) {
    const Longs p0 = multiply_lower(c0, 0xD2511F53u), p1 = multiply_lower(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c1 = p1;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
LOCKSTEP_INLINE Longs counters_from(std::uint64_t first) {
  return Longs{0, 1, 2, 3, 4, 5, 6, 7} + first;
}

// The lower halves of even and odd lanes side by side: [a0 b0 a1 b1 ...].
LOCKSTEP_INLINE Words interleave_lower(Longs a, Longs b) {
  return (Words)((a & 0xffffffffu) | (b << 32));
}
LOCKSTEP_INLINE Longs lower_lanes(Longs a, Longs b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
LOCKSTEP_INLINE Longs upper_lanes(Longs a, Longs b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Up or down to bf16, up with the probability of how far v is on its way, for uniform bits in
// [0, 2^16): the mean over them is v. NaN stays NaN.
LOCKSTEP_INLINE Halves round_stochastically(Floats v, Words bits) {
  const Words u = (Words)v;
  const Words quiet = (u >> 16) | 0x40u;
  return __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quiet : (u + bits) >> 16,
                                 Halves);
}

// uniform_open of core/philox.h.
LOCKSTEP_INLINE Floats uniform_open_lanes(Words w) {
  return (__builtin_convertvector((Ints)(w >> 9), Floats) + 0.5f) * 0x1p-23f;
}

// ln x for normal x > 0, relative error below 3e-7 (also around 1).
// x = 2^e m, m in [sqrt(1/2), sqrt 2); polynomial of Cephes logf.
LOCKSTEP_INLINE Floats log(Floats x) {
  const Words bits = (Words)x - 0x3f3504f3u;  // sqrt(1/2)
  const Floats e = __builtin_convertvector((Ints)bits >> 23, Floats);
  const Floats f = (Floats)((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  const Floats s = f * f;
  Floats p = splat(7.0376836292e-2f);
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const Floats tail = f * s * p - 2.12194440e-4f * e - 0.5f * s;
  return (f + tail) + 0.693359375f * e;
}

// sin and cos of 2 pi x for 0 <= x <= 1, absolute error below 2e-7. The quarter turn is taken off
// exactly; Taylor polynomials on [-pi/4, pi/4].
struct SinCos {
  Floats sin, cos;
};
LOCKSTEP_INLINE SinCos sincos_turns(Floats x) {
  const Floats quarter = round_to_integer(4.0f * x);
  const Floats r = (x - 0.25f * quarter) * 6.28318530718f;
  const Floats s = r * r;
  Floats a = splat(1.0f / 362880);
  a = a * s - 1.0f / 5040;
  a = a * s + 1.0f / 120;
  a = a * s - 1.0f / 6;
  a = r + r * s * a;
  Floats b = splat(1.0f / 40320);
  b = b * s - 1.0f / 720;
  b = b * s + 1.0f / 24;
  b = b * s - 0.5f;
  b = b * s + 1.0f;
  const Words k = (Words) __builtin_convertvector(quarter, Ints);
  const Floats sine = (k & 1u) != 0u ? b : a, cosine = (k & 1u) != 0u ? a : b;
  const Words sine_sign = (k & 2u) << 30, cosine_sign = ((k + 1u) & 2u) << 30;
  return {(Floats)((Words)sine ^ sine_sign), (Floats)((Words)cosine ^ cosine_sign)};
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

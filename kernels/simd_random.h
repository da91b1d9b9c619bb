// This file computes Philox (core/philox.h) for eight draws at a time. Its other functions turn the
// words into normal numbers and round stochastically. Only cpu_begin.h includes this file.
#pragma once

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {

using Longs = Lanes<std::uint64_t, 8>;

// Multiplies the lower halves of the lanes of a by m; the upper halves of a may hold anything.
LOCKSTEP_INLINE Longs multiply_lower(Longs a, std::uint32_t m) {
  const auto f = [m](auto v) -> decltype(v) {
#if LOCKSTEP_CPU_LEVEL >= 2
    return (decltype(v))_mm512_maskz_mul_epu32(0xff, (__m512i)v, _mm512_set1_epi64(m));
#elif LOCKSTEP_CPU_LEVEL == 1
    return (decltype(v))_mm256_mul_epu32((__m256i)v, _mm256_set1_epi64x(m));
#elif defined(__x86_64__)
    return (decltype(v))_mm_mul_epu32((__m128i)v, _mm_set1_epi64x(m));
#else
    return (v & 0xffffffffu) * std::uint64_t{m};
#endif
  };
  return map(f, a);
}

// PhiloxLanes is eight draws: lane i has the words of philox(key, counter_high, counter_low[i]) in
// the lower halves of its four Longs.
struct PhiloxLanes {
  Longs word[4];
};
LOCKSTEP_INLINE PhiloxLanes philox_lanes(std::uint64_t key, std::uint64_t counter_high,
                                         Longs counter_low) {
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  Longs c0 = counter_low, c1 = counter_low >> 32;
  Longs c2 = splat<std::uint64_t, 8>(counter_high), c3 = c2 >> 32;
#pragma GCC unroll 10
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
  static constexpr std::uint64_t kLane[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  return load_lanes<Longs>(kLane) + first;
}

// lower_halves puts the lower halves of a into the lower halves and those of b into the upper
// halves. upper_halves does the same with the upper halves of both.
LOCKSTEP_INLINE Longs lower_halves(Longs a, Longs b) {
  return (a & 0xffffffffu) | (b << 32);
}
LOCKSTEP_INLINE Longs upper_halves(Longs a, Longs b) {
  return (a >> 32) | (b & 0xffffffff00000000u);
}

// Writes the eight draws one after the other, four words each.
LOCKSTEP_INLINE void store_draws(void* p, const PhiloxLanes& draws) {
  const auto [low, high] =
      zip(lower_halves(draws.word[0], draws.word[1]), lower_halves(draws.word[2], draws.word[3]));
  store_lanes(p, low);
  store_lanes(static_cast<char*>(p) + sizeof low, high);
}

// Rounds up or down to bf16, for uniform bits in [0, 2^16). The probability of up is the fraction
// of the way that v has come, so the mean is v. NaN stays NaN.
LOCKSTEP_INLINE Words round_stochastically(Floats v, Words random_bits) {
  const Words u = bits_as<std::uint32_t>(v);
  return select(v != v, u | 0x400000u, u + random_bits) >> 16;
}

// Computes uniform_open of core/philox.h.
LOCKSTEP_INLINE Floats uniform_open_lanes(Words w) {
  return (convert_to<float>(bits_as<std::int32_t>(w >> 9)) + 0.5f) * 0x1p-23f;
}

// Computes ln x for normal x > 0, with a relative error below 3e-7 (also around 1).
// x = 2^e m, m in [sqrt(1/2), sqrt 2); the polynomial is that of Cephes logf.
LOCKSTEP_INLINE Floats log(Floats x) {
  const Words bits = bits_as<std::uint32_t>(x) - 0x3f3504f3u;  // sqrt(1/2)
  const Floats e = convert_to<float>(bits_as<std::int32_t>(bits) >> 23);
  const Floats f = bits_as<float>((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
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

// sincos_turns computes sin and cos of 2 pi x for 0 <= x <= 1, with an absolute error below 2e-7.
// It subtracts the quarter turns exactly and uses Taylor polynomials on [-pi/4, pi/4].
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
  const Words k = bits_as<std::uint32_t>(convert_to<std::int32_t>(quarter));
  const auto odd = (k & 1u) != 0u;
  const Words sine = bits_as<std::uint32_t>(select(odd, b, a));
  const Words cosine = bits_as<std::uint32_t>(select(odd, a, b));
  return {bits_as<float>(sine ^ ((k & 2u) << 30)),
          bits_as<float>(cosine ^ (((k + 1u) & 2u) << 30))};
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

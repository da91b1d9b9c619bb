// This file converts integers of 8 or 16 bits in memory to words of 32 bits, and back. It uses
// intrinsics, because GCC 12 would take a vector apart. They are the masked ones, because GCC 12
// warns (falsely) about the undefined vector inside the others. Only cpu_begin.h includes this
// file.
#pragma once

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {

using Words = Lanes<std::uint32_t, 16>;

namespace one_register {

using W = Lanes<std::uint32_t, kRegisterBytes / 4>;

#if LOCKSTEP_CPU_LEVEL >= 2
LOCKSTEP_INLINE W widen(const std::uint16_t* p) {
  return {(W::Vector)_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256((const __m256i*)p))};
}
LOCKSTEP_INLINE W widen(const std::uint8_t* p) {
  return {(W::Vector)_mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128((const __m128i*)p))};
}
LOCKSTEP_INLINE void narrow(std::uint16_t* p, W w) {
  _mm256_storeu_si256((__m256i*)p, _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)w.v));
}
LOCKSTEP_INLINE void narrow(std::uint8_t* p, W w) {
  _mm_storeu_si128((__m128i*)p, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)w.v));
}

#elif LOCKSTEP_CPU_LEVEL == 1
LOCKSTEP_INLINE W widen(const std::uint16_t* p) {
  return {(W::Vector)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p))};
}
LOCKSTEP_INLINE W widen(const std::uint8_t* p) {
  return {(W::Vector)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p))};
}
LOCKSTEP_INLINE __m128i pack_16(W w) {
  const auto v = (__m256i)w.v;
  return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}
LOCKSTEP_INLINE void narrow(std::uint16_t* p, W w) {
  _mm_storeu_si128((__m128i*)p, pack_16(w));
}
LOCKSTEP_INLINE void narrow(std::uint8_t* p, W w) {
  const __m128i v = pack_16(w);
  _mm_storel_epi64((__m128i*)p, _mm_packus_epi16(v, v));
}

#elif defined(__x86_64__)
LOCKSTEP_INLINE W widen(const std::uint16_t* p) {
  return {(W::Vector)_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i*)p))};
}
LOCKSTEP_INLINE W widen(const std::uint8_t* p) {
  int four = 0;
  __builtin_memcpy(&four, p, sizeof four);
  return {(W::Vector)_mm_cvtepu8_epi32(_mm_cvtsi32_si128(four))};
}
LOCKSTEP_INLINE void narrow(std::uint16_t* p, W w) {
  const auto v = (__m128i)w.v;
  _mm_storel_epi64((__m128i*)p, _mm_packus_epi32(v, v));
}
LOCKSTEP_INLINE void narrow(std::uint8_t* p, W w) {
  const auto v = _mm_packus_epi32((__m128i)w.v, (__m128i)w.v);
  const int four = _mm_cvtsi128_si32(_mm_packus_epi16(v, v));
  __builtin_memcpy(p, &four, sizeof four);
}

#else
template <class Small>
LOCKSTEP_INLINE W widen(const Small* p) {
  W w;
  for (int i = 0; i < 4; ++i)
    w.v[i] = p[i];
  return w;
}
template <class Small>
LOCKSTEP_INLINE void narrow(Small* p, W w) {
  for (int i = 0; i < 4; ++i)
    p[i] = static_cast<Small>(w.v[i]);
}
#endif

}  // namespace one_register

template <class L, class Small>
LOCKSTEP_INLINE L widen_lanes(const Small* p) {
  if constexpr (L::kInRegister) {
    return one_register::widen(p);
  } else {
    constexpr auto kHalf = sizeof(L) / 4 / 2;
    return join(widen_lanes<decltype(L::low)>(p), widen_lanes<decltype(L::high)>(p + kHalf));
  }
}
// Narrows words that fit into the small type.
template <class Small, int N>
LOCKSTEP_INLINE void narrow(Small* p, Lanes<std::uint32_t, N> w) {
  if constexpr (Lanes<std::uint32_t, N>::kInRegister) {
    one_register::narrow(p, w);
  } else {
    narrow(p, w.low);
    narrow(p + N / 2, w.high);
  }
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

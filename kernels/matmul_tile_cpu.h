// This file defines the tile of the matmul: kMr x kNr sums in registers. Vectors here have the
// width of a register, so that the compiler keeps them there; those of simd.h always have 16 lanes.
//
// The kernel multiplies words of 32 bits. A word is a float or, if the CPU multiplies bf16
// (vdpbf16ps), two consecutive bf16 of a row of k. Otherwise bf16 are widened when they are packed.
// This file is included only between cpu_begin.h and cpu_end.h.
#pragma once

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

#if LOCKSTEP_CPU_LEVEL >= 2
inline constexpr int kVectorBytes = 64;
#elif LOCKSTEP_CPU_LEVEL == 1
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
#if LOCKSTEP_CPU_LEVEL >= 2 || defined(__aarch64__)  // 32 registers: 24 sums, 3 of b, 1 of a
inline constexpr int kMr = 8, kVectors = 3;
#elif LOCKSTEP_CPU_LEVEL == 1  // 16 registers: 12 sums, 3 of b, 1 of a
inline constexpr int kMr = 4, kVectors = 3;
#else                          // 16 registers; without FMA, a multiplication needs one too
inline constexpr int kMr = 4, kVectors = 2;
#endif

using Vec = float __attribute__((vector_size(kVectorBytes)));
using VecWords = std::uint32_t __attribute__((vector_size(kVectorBytes)));
using VecHalves = std::uint16_t __attribute__((vector_size(kVectorBytes / 2)));
inline constexpr int kWide = kVectorBytes / 4;  // words in a vector
inline constexpr int kNr = kVectors * kWide;

// Elements of T in a packed word.
template <class T>
inline constexpr int kPerWord = 1;
#if LOCKSTEP_CPU_LEVEL >= 3
template <>
inline constexpr int kPerWord<BFloat16> = 2;
#endif

LOCKSTEP_INLINE VecWords load_words(const void* p) {
  VecWords v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
LOCKSTEP_INLINE void store_words(float* p, VecWords v) {
  __builtin_memcpy(p, &v, sizeof v);
}
LOCKSTEP_INLINE VecWords broadcast(const float* p) {
  std::uint32_t word = 0;
  __builtin_memcpy(&word, p, sizeof word);
  return VecWords{} + word;  // as integers: a float would lose the sign of -0 and half of a pair
}

// Returns sum + a b, over the elements of a word.
template <class T>
LOCKSTEP_INLINE Vec multiply_add(Vec sum, VecWords a, VecWords b) {
#if LOCKSTEP_CPU_LEVEL >= 3
  if constexpr (kPerWord<T> == 2)
    return (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
  return sum + (Vec)a * (Vec)b;
}

// Ahead is memory that will be packed next. Each tile prefetches lines of it into L2, one every
// kAheadWords of its k. They are spread, because the CPU drops prefetches that come in a burst.
struct Ahead {
  const std::byte* line;
  std::int64_t step_bytes;
};
inline constexpr std::int64_t kAheadWords = 16;

// Computes tile [kMr, kNr] = (accumulate ? tile : 0) + a b over `words` words of k. It computes the
// first `Vectors` vectors of each row.
//   a: row i, word k at a[i * AStride + k * AStep]        b [k, kNr]
template <class T, int Vectors, int AStride, int AStep>
__attribute__((noinline)) void multiply_tile(float* tile, const float* a, const float* b,
                                             std::int64_t words, bool accumulate, Ahead ahead) {
  if (accumulate)
    for (int i = 0; i < kMr * kNr; i += 16)
      __builtin_prefetch(tile + i, 1);
  Vec sums[kMr][Vectors] = {};
  for (std::int64_t begin = 0; begin < words; begin += kAheadWords) {
    __builtin_prefetch(ahead.line, 0, 2);
    ahead.line += ahead.step_bytes;
    const auto end = std::min(words, begin + kAheadWords);
#pragma GCC unroll 1
    for (auto k = begin; k < end; ++k) {
      VecWords row[Vectors];
      for (int j = 0; j < Vectors; ++j)
        row[j] = load_words(b + j * kWide);
#pragma GCC unroll 8
      for (int i = 0; i < kMr; ++i) {
        const VecWords left = broadcast(a + i * AStride);
        for (int j = 0; j < Vectors; ++j)
          sums[i][j] = multiply_add<T>(sums[i][j], left, row[j]);
      }
      a += AStep;
      b += kNr;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kMr; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j) {
      float* p = tile + i * kNr + j * kWide;
      if (accumulate) sums[i][j] += (Vec)load_words(p);
      store_words(p, (VecWords)sums[i][j]);
    }
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

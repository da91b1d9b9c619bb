// This file defines small dense matmuls of blocks that are packed in cache, and their packing, for
// attention. It is included only after cpu_begin.h.
//
// A Word is the operand of one multiplication: a float, or a Pair of bf16 if the CPU multiplies
// bf16. The two of a Pair are neighbours along the depth of the matmul. Everything is packed in
// words, so that one kernel serves both. Vectors here have the width of a register, so that the
// compiler keeps them there; those of simd.h always have 16 lanes. An element of a result is summed
// along the depth in order. So the bits do not depend on the blocking of rows and columns.
#pragma once

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

#if LOCKSTEP_CPU_LEVEL >= 2
inline constexpr std::int64_t kWidth = 16;
inline constexpr int kTileRows = 6, kTilePanels = 4;  // 24 of 32 registers hold sums
#elif LOCKSTEP_CPU_LEVEL == 1
inline constexpr std::int64_t kWidth = 8;
inline constexpr int kTileRows = 6, kTilePanels = 1;  // 12 of 16
#elif defined(__aarch64__)
inline constexpr std::int64_t kWidth = 4;
inline constexpr int kTileRows = 6, kTilePanels = 1;  // 24 of 32
#else
inline constexpr std::int64_t kWidth = 4;
inline constexpr int kTileRows = 2, kTilePanels = 1;  // 8 of 16
#endif
inline constexpr std::int64_t kPanel = 16;  // columns are padded to whole panels

using Vector = float __attribute__((vector_size(4 * kWidth)));
using IntVector = std::int32_t __attribute__((vector_size(4 * kWidth)));
using WordVector = std::uint32_t __attribute__((vector_size(4 * kWidth)));
using HalfVector = std::uint16_t __attribute__((vector_size(2 * kWidth)));

struct Pair {
  std::uint32_t bits;  // the earlier bf16 in the lower half
};

template <class E>  // element type of the tensors
struct WordOf {
  using type = float;
};
#if LOCKSTEP_CPU_LEVEL == 3
template <>
struct WordOf<BFloat16> {
  using type = Pair;
};
#endif
template <class Word>
inline constexpr int kPerWord = std::is_same_v<Word, Pair> ? 2 : 1;

template <class V, class T>
LOCKSTEP_INLINE V read(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class T>
LOCKSTEP_INLINE void write(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// Returns sum + a b, lane by lane, over the elements of a word.
template <class Word>
LOCKSTEP_INLINE Vector multiply_words(Vector sum, WordVector a, WordVector b) {
#if LOCKSTEP_CPU_LEVEL == 3
  if constexpr (kPerWord<Word> == 2)
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
  return sum + (Vector)a * (Vector)b;
}
LOCKSTEP_INLINE WordVector broadcast(const float* p) {
  return (WordVector)(Vector{} + *p);
}
LOCKSTEP_INLINE WordVector broadcast(const Pair* p) {
  return WordVector{} + p->bits;
}

enum class Sum : std::uint8_t { fresh, add, scale_and_add };
enum class Layout : std::uint8_t {
  rows,    // A(r, k) = a[r * a_stride + k]
  across,  // A(r, k) = a[k * a_stride + r]
};

// Product describes the matmul c[r, :] = base + sum over k < depth of A(r, k) b[k, :]. Strides and
// depth are in words. Sum selects the base:
//   fresh: 0      add: c[r, :]      scale_and_add: scale[r] c[r, :]
template <class Word>
struct Product {
  float* c;
  std::int64_t c_stride;
  const Word* a;
  std::int64_t a_stride;
  const Word* b;
  std::int64_t b_stride;
  std::int64_t depth;
  const float* scale = nullptr;
};

// Computes R rows by P panels.
template <int R, int P, Sum kSum, Layout kLayout, class Word>
__attribute__((noinline)) void tile_product(const Product<Word>& p) {
  constexpr int kVectors = P * kPanel / kWidth;
  Vector sums[R][kVectors] = {};
  if constexpr (kSum != Sum::fresh)
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < P; ++v)
        __builtin_prefetch(p.c + r * p.c_stride + v * kPanel, 1);
  const Word *a = p.a, *b = p.b;
  const auto a_row = kLayout == Layout::rows ? p.a_stride : 1;
  const auto a_next = kLayout == Layout::rows ? 1 : p.a_stride;
  for (std::int64_t k = 0; k < p.depth; ++k, a += a_next, b += p.b_stride) {
    WordVector right[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      right[v] = read<WordVector>(b + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = multiply_words<Word>(sums[r][v], broadcast(a + r * a_row), right[v]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* c = p.c + r * p.c_stride + v * kWidth;
      if constexpr (kSum == Sum::add) sums[r][v] += read<Vector>(c);
      if constexpr (kSum == Sum::scale_and_add) sums[r][v] += p.scale[r] * read<Vector>(c);
      write(c, sums[r][v]);
    }
}

// Computes P panels. The number of rows is rounded up to an even number; a and c must have that
// many.
template <int P, Sum kSum, Layout kLayout, class Word>
void panel_product(Product<Word> p, std::int64_t rows) {
  const auto advance = [&](std::int64_t r) {
    p.c += r * p.c_stride;
    p.a += kLayout == Layout::rows ? r * p.a_stride : r;
    if (kSum == Sum::scale_and_add) p.scale += r;
    rows -= r;
  };
  while (rows > kTileRows - 2) {
    tile_product<kTileRows, P, kSum, kLayout>(p);
    advance(kTileRows);
  }
  if constexpr (kTileRows > 2) {
    if (rows > 2) {
      tile_product<4, P, kSum, kLayout>(p);
    } else if (rows > 0) {
      tile_product<2, P, kSum, kLayout>(p);
    }
  }
}

template <Sum kSum, Layout kLayout, class Word>
void product(Product<Word> p, std::int64_t rows, std::int64_t panels) {
  for (auto groups = divide_up(panels, kTilePanels); groups > 0; --groups) {
    const auto now = divide_up(panels, groups);
    if (now == 1) panel_product<1, kSum, kLayout>(p, rows);
    if constexpr (kTilePanels == 4) {
      if (now == 2) panel_product<2, kSum, kLayout>(p, rows);
      if (now == 3) panel_product<3, kSum, kLayout>(p, rows);
      if (now == 4) panel_product<4, kSum, kLayout>(p, rows);
    }
    p.c += now * kPanel;
    p.b += now * kPanel;
    panels -= now;
  }
}

// Converts bf16 to fp32.
LOCKSTEP_INLINE WordVector widen(HalfVector h) {
#if LOCKSTEP_CPU_LEVEL >= 2  // __builtin_convertvector converts two halves and joins them
  return (WordVector)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)h) << 16;
#else
  return __builtin_convertvector(h, WordVector) << 16;
#endif
}

// Returns the next kWidth words of a row of which `elements` elements are left; 0 past its end.
template <class Word, class E>
LOCKSTEP_INLINE WordVector row_words(const E* p, std::int64_t elements) {
  constexpr int kElements = kWidth * kPerWord<Word>;
  E padded[kElements];
  if (elements < kElements) {
    __builtin_memset(padded, 0, sizeof padded);
    if (elements > 0) __builtin_memcpy(padded, p, static_cast<std::size_t>(elements) * sizeof(E));
    p = padded;
  }
  if constexpr (sizeof(E) * kPerWord<Word> == sizeof(Word)) {
    return read<WordVector>(p);
  } else {
    return widen(read<HalfVector>(p));
  }
}

// Packs to[r][w] = word w of row r, 0 past the row's K elements.
//   to [rows, stride], stride % 16 = 0
template <class Word, class E>
void pack_rows(Word* to, std::int64_t stride, const E* from, std::int64_t from_stride,
               std::int64_t rows, std::int64_t K) {
  for (std::int64_t r = 0; r < rows; ++r, to += stride, from += from_stride)
    for (std::int64_t w = 0; w < stride; w += kWidth) {
      const auto k = w * kPerWord<Word>;
      write(to + w, row_words<Word>(from + k, K - k));
    }
}

// Packs the rows as the right operand of a matmul whose depth runs over rows. Word k of row r is
// element k of row r, or of rows 2r and 2r + 1 (0 past the last).
//   to [ceil(rows / kPerWord), stride]
template <class Word, class E>
void pack_stacked(Word* to, std::int64_t stride, const E* from, std::int64_t from_stride,
                  std::int64_t rows, std::int64_t K) {
  if constexpr (kPerWord<Word> == 1) {
    pack_rows(to, stride, from, from_stride, rows, K);
  } else {
    for (std::int64_t r = 0; r < rows; r += 2, to += stride, from += 2 * from_stride)
      for (std::int64_t k = 0; k < stride; k += kWidth) {
        const auto lower = row_words<float>(from + k, K - k);
        const auto upper =
            r + 1 < rows ? row_words<float>(from + from_stride + k, K - k) : WordVector{};
        write(to + k, lower >> 16 | upper);
      }
  }
}

template <int S, int... L>
LOCKSTEP_INLINE void exchange(WordVector& a, WordVector& b, std::integer_sequence<int, L...>) {
  const WordVector lower = __builtin_shufflevector(a, b, ((L & S) ? kWidth + L - S : L)...);
  b = __builtin_shufflevector(a, b, ((L & S) ? kWidth + L : L + S)...);
  a = lower;
}
// Transposes a square by exchanging its off-diagonal quarters, their quarters, and so on.
template <int S = kWidth / 2>
LOCKSTEP_INLINE void transpose(WordVector (&rows)[kWidth]) {
#pragma GCC unroll 16
  for (int r = 0; r < kWidth; ++r)
    if ((r & S) == 0) exchange<S>(rows[r], rows[r + S], std::make_integer_sequence<int, kWidth>{});
  if constexpr (S > 1) transpose<S / 2>(rows);
}

// Packs to[w][r] = word w of row r; 0 for r from `rows` to the end of the last panel.
//   to [words, stride], with words rounded up to 16
template <class Word, class E>
void pack_transposed(Word* to, std::int64_t stride, const E* from, std::int64_t from_stride,
                     std::int64_t rows, std::int64_t K) {
  for (std::int64_t r = 0; r < round_up(rows, kPanel); r += kWidth)
    for (std::int64_t w = 0; w * kPerWord<Word> < K; w += kWidth) {
      WordVector square[kWidth];
      const auto k = w * kPerWord<Word>;
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i)
        square[i] =
            r + i < rows ? row_words<Word>(from + (r + i) * from_stride + k, K - k) : WordVector{};
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i)
        write(to + (w + i) * stride + r, square[i]);
    }
}

// Writes two vectors that follow each other in a row, as words.
LOCKSTEP_INLINE void write_row(float* p, Vector first, Vector second) {
  write(p, first);
  write(p + kWidth, second);
}
#if LOCKSTEP_CPU_LEVEL == 3
// Writes two rows of a left operand whose depth runs over rows, as words.
LOCKSTEP_INLINE void write_stacked(Pair* p, Vector lower, Vector upper) {
  const auto l = (HalfVector)_mm512_cvtneps_pbh((__m512)lower);
  const auto u = (HalfVector)_mm512_cvtneps_pbh((__m512)upper);
  write(p, widen(l) >> 16 | widen(u));
}
LOCKSTEP_INLINE void write_row(Pair* p, Vector first, Vector second) {
  write(p, (WordVector)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
}
#endif

LOCKSTEP_INLINE Vector larger(Vector a, Vector b) {
  return a > b ? a : b;
}

// Computes 2^x for x <= 126, with relative error 2e-7. It is exactly 1 at 0, and 0 below -126; NaN
// stays NaN.
// 2^x = 2^n 2^r with |r| <= 1/2. Adding 1.5 x 2^23 + 127 leaves n + 127, the exponent of 2^n, in
// the low bits of a float. The polynomial minimises the largest relative error among those with
// value 1 at 0.
LOCKSTEP_INLINE Vector exp2(Vector x) {
  constexpr float kShift = 0x1.8p23f + 127;
  const Vector shifted = x + kShift;
  const Vector r = x - (shifted - kShift);
  Vector p = Vector{} + 1.5353362e-4f;
  p = p * r + 1.33988750e-3f;
  p = p * r + 9.61843692e-3f;
  p = p * r + 5.55033237e-2f;
  p = p * r + 2.40226477e-1f;
  p = p * r + 6.93147182e-1f;
  p = p * r + 1.0f;
  const Vector y = p * (Vector)((WordVector)shifted << 23);
  return x < -126.0f ? Vector{} : y;
}

// Computes log2 x of a normal x > 0, with absolute error 2e-7 (relative above 2); NaN stays NaN.
// x = 2^n m, with m within a factor of sqrt 2 of 1. log m = 2 artanh s with s = (m - 1) / (m + 1),
// computed by its series.
LOCKSTEP_INLINE Vector log2(Vector x) {
  const IntVector n = ((IntVector)x - 0x3f3504f3) >> 23;
  const Vector m = (Vector)((IntVector)x - (n << 23));
  const Vector s = (m - 1.0f) / (m + 1.0f), t = s * s;
  Vector p = Vector{} + 1.0f / 9;
  p = p * t + 1.0f / 7;
  p = p * t + 1.0f / 5;
  p = p * t + 1.0f / 3;
  p = p * t + 1.0f;
  const Vector y = __builtin_convertvector(n, Vector) + s * p * 2.88539008f;  // 2 / ln 2
  return x != x ? x : y;
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

// Packing: blocks of the two operands are copied to where the tile kernel reads them in order, so
// that row strides of a multiple of 4 KiB (which all fall into one set of the L1 cache) cost
// nothing. What lies outside the operand becomes zero.
// Included between cpu_begin.h and cpu_end.h only.
#pragma once

#include "kernels/matmul_tile_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

inline constexpr std::int64_t kDepth = 384;              // words of k in a block
inline constexpr std::int64_t kStrip = 16;               // columns of a strip of a transposed A
inline constexpr std::int64_t kRowStride = kDepth + 16;  // of a row of A
inline constexpr std::int64_t kStripStride = kStrip * kDepth + 80;  // not a multiple of 4 KiB
inline constexpr std::int64_t kPanelStride = kNr * kDepth + 80;     // of a panel of B

// Words at p: kWide of them, of which the first `words` (or `elements`, a word may be half full)
// exist.
LOCKSTEP_INLINE VecWords read_words(const float* p) {
  return load_words(p);
}
LOCKSTEP_INLINE VecWords read_words(const BFloat16* p) {
  if constexpr (kPerWord<BFloat16> == 2) return load_words(p);
  VecHalves h;
  __builtin_memcpy(&h, p, sizeof h);
  return __builtin_convertvector(h, VecWords) << 16;
}
template <class T>
LOCKSTEP_INLINE VecWords read_words(const T* p, std::int64_t elements) {
  if (elements >= kWide * kPerWord<T>) return read_words(p);
  T buffer[kWide * kPerWord<T>] = {};
  if (elements > 0)
    __builtin_memcpy(static_cast<void*>(buffer), p, static_cast<std::size_t>(elements) * sizeof(T));
  return read_words(buffer);
}

// Words of which element e is row e of k: one row, or two interleaved.
template <class T>
LOCKSTEP_INLINE VecWords read_column_words(const T* p, std::int64_t columns) {
  T buffer[kWide] = {};
  if (columns < kWide) {
    if (columns > 0)
      __builtin_memcpy(static_cast<void*>(buffer), p,
                       static_cast<std::size_t>(columns) * sizeof(T));
    p = buffer;
  }
  if constexpr (kPerWord<T> == 1) {
    return read_words(p);
  } else {
    VecHalves h;
    __builtin_memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, VecWords);
  }
}

// The lower (Half 0) or upper halves of a and b, interleaved.
template <int Half, std::size_t... I>
LOCKSTEP_INLINE VecWords interleave(VecWords a, VecWords b, std::index_sequence<I...>) {
  return __builtin_shufflevector(a, b, (I / 2 + I % 2 * kWide + Half * kWide / 2)...);
}

// Transposes kWide vectors of kWide words: log2(kWide) times, the first half of the vectors is
// interleaved with the second.
LOCKSTEP_INLINE void transpose(VecWords (&v)[kWide]) {
  constexpr auto kIndices = std::make_index_sequence<kWide>{};
#pragma GCC unroll 4
  for (int step = 1; step < kWide; step *= 2) {
    VecWords w[kWide];
#pragma GCC unroll 8
    for (int i = 0; i < kWide / 2; ++i) {
      w[2 * i] = interleave<0>(v[i], v[i + kWide / 2], kIndices);
      w[2 * i + 1] = interleave<1>(v[i], v[i + kWide / 2], kIndices);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWide; ++i)
      v[i] = w[i];
  }
}

// An operand, as seen from the product: `lines` rows of A or columns of B, each of k elements.
// k_contiguous: element (line, k) is data[line * stride + k], else data[k * stride + line].
template <class T>
struct Operand {
  const T* data;
  std::int64_t stride, lines, k;
};

// Part of an operand: lines [line, line + lines), elements [k, k + depth).
struct Block {
  std::int64_t line, lines, k, depth;
};

template <class T>
std::int64_t words_of(const Block& block) {
  return (block.depth + kPerWord<T> - 1) / kPerWord<T>;
}

// A with contiguous k: rows at kRowStride, as many as fill the last tile.
template <class T>
void pack_rows(float* out, const Operand<T>& a, const Block& block) {
  const auto words = words_of<T>(block);
  for (std::int64_t i = 0; i < block.lines; ++i) {
    const T* row = a.data + (block.line + i) * a.stride + block.k;
    for (std::int64_t w = 0; w < words; w += kWide)
      store_words(out + i * kRowStride + w,
                  read_words(row + w * kPerWord<T>, block.depth - w * kPerWord<T>));
  }
  for (auto i = block.lines; i % kMr != 0; ++i)
    std::fill_n(out + i * kRowStride, words, 0.0f);
}

// An operand with contiguous lines: groups of Width lines, each [words, Width], GroupStride apart.
// Sums over k of each line are added to sums, where given.
template <int Width, std::int64_t GroupStride, class T>
void pack_lines(float* out, const Operand<T>& source, const Block& block) {
  const auto words = words_of<T>(block);
  for (std::int64_t w = 0; w < words; ++w) {
    const T* row = source.data + (block.k + w * kPerWord<T>)*source.stride + block.line;
    const bool full = (w + 1) * kPerWord<T> <= block.depth;
    for (std::int64_t group = 0; group * Width < block.lines; ++group)
      for (std::int64_t c = group * Width, j = 0; j < Width; c += kWide, j += kWide) {
        VecWords v = read_column_words(row + c, block.lines - c);
        if (kPerWord<T> == 2 && full)
          v |= read_column_words(row + source.stride + c, block.lines - c) << 16;
        store_words(out + group * GroupStride + w * Width + j, v);
      }
  }
}

// B with contiguous k: panels of kNr columns, each [words, kNr], by transposing.
template <class T>
void pack_transposed(float* out, const Operand<T>& b, const Block& block) {
  const auto words = words_of<T>(block);
  for (std::int64_t line = 0; line < block.lines; line += kWide) {
    float* panel = out + line / kNr * kPanelStride + line % kNr;
    const auto lines = std::min<std::int64_t>(kWide, block.lines - line);
    for (std::int64_t w = 0; w < words; w += kWide) {
      VecWords v[kWide];
#pragma GCC unroll 16
      for (int i = 0; i < kWide; ++i) {
        const auto clamped = std::min<std::int64_t>(i, lines - 1);
        v[i] = read_words(
            b.data + (block.line + line + clamped) * b.stride + block.k + w * kPerWord<T>,
            i < lines ? block.depth - w * kPerWord<T> : 0);
      }
      transpose(v);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(kWide, words - w); ++i)
        store_words(panel + (w + i) * kNr, v[i]);
    }
  }
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

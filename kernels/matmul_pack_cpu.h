// This file packs blocks of the two operands, so that the tile kernel reads them in order. Then row
// strides of a multiple of 4 KiB, which all map to one set of the L1 cache, cost nothing. Elements
// outside the operand become zero. This file is included only between cpu_begin.h and cpu_end.h.
#pragma once

#include "kernels/matmul_tile_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

inline constexpr std::int64_t kDepth = 384;              // words of k in a block, at most
inline constexpr std::int64_t kStrip = 16;               // columns of a strip of a transposed A
inline constexpr std::int64_t kRowStride = kDepth + 16;  // of a row of A
inline constexpr std::int64_t kStripStride = kStrip * kDepth + 80;  // not a multiple of 4 KiB
inline constexpr std::int64_t kPanelStride = kNr * kDepth + 80;     // of a panel of B

// Operand describes an operand of the matmul: `lines` rows of A or columns of B, each of k
// elements.
// With contiguous k, element (line, k) is data[line * stride + k], else data[k * stride + line].
template <class T>
struct Operand {
  const T* data;
  std::int64_t stride, lines, k;
};

// Block is a part of an operand: lines [line, line + lines), elements [k, k + depth).
struct Block {
  std::int64_t line, lines, k, depth;
};

template <class T>
std::int64_t words_of(const Block& block) {
  return divide_up(block.depth, kPerWord<T>);
}

// Returns the kWide words at p, of which `elements` elements exist (a word may be half full).
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

// Returns one word of each of kWide lines, of which `lines` exist. A word is element k at p. The
// upper half of a pair is the next element at `next` (null: there is none).
template <class T>
LOCKSTEP_INLINE VecWords read_across(const T* p, const T* next, std::int64_t lines) {
  if constexpr (kPerWord<T> == 1) {
    return read_words(p, lines);
  } else {
    const auto halves = [lines](const T* at) {
      VecHalves h{};
      if (lines >= kWide)
        __builtin_memcpy(&h, at, sizeof h);
      else if (lines > 0)
        __builtin_memcpy(&h, at, static_cast<std::size_t>(lines) * sizeof(T));
      return __builtin_convertvector(h, VecWords);
    };
    return next == nullptr ? halves(p) : halves(p) | halves(next) << 16;
  }
}

// Interleaves the lower (Half 0) or upper halves of a and b.
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

// Packs A with contiguous k: rows at kRowStride, with rows of zeros that fill the last tile.
template <class T>
void pack_rows(float* out, const Operand<T>& a, const Block& block) {
  const auto words = words_of<T>(block);
  for (std::int64_t i = 0; i < block.lines; ++i) {
    const T* row = a.data + (block.line + i) * a.stride + block.k;
    for (std::int64_t w = 0; w < words; w += kWide) {
      const auto k = w * kPerWord<T>;
      __builtin_prefetch(row + a.stride + k);
      store_words(out + i * kRowStride + w, read_words(row + k, block.depth - k));
    }
  }
  for (auto i = block.lines; i % kMr != 0; ++i)
    std::fill_n(out + i * kRowStride, words, 0.0f);
}

// Packs an operand with contiguous lines: groups of Width lines, each [words, Width], GroupStride
// apart.
template <int Width, std::int64_t GroupStride, class T>
void pack_lines(float* out, const Operand<T>& source, const Block& block) {
  const auto words = words_of<T>(block);
  for (std::int64_t w = 0; w < words; ++w) {
    const auto k = w * kPerWord<T>;
    const T* row = source.data + (block.k + k) * source.stride + block.line;
    const T* next = k + 1 < block.depth ? row + source.stride : nullptr;
    for (std::int64_t group = 0; group * Width < block.lines; ++group)
      for (std::int64_t j = 0; j < Width; j += kWide) {
        const auto line = group * Width + j;
        for (int e = 0; e < kPerWord<T>; ++e)
          __builtin_prefetch(row + (4 * kPerWord<T> + e) * source.stride + line);
        store_words(
            out + group * GroupStride + w * Width + j,
            read_across(row + line, next == nullptr ? next : next + line, block.lines - line));
      }
  }
}

// Packs B with contiguous k by transposing: panels of kNr columns, each [words, kNr].
template <class T>
void pack_transposed(float* out, const Operand<T>& b, const Block& block) {
  const auto words = words_of<T>(block);
  for (std::int64_t line = 0; line < block.lines; line += kWide) {
    float* panel = out + line / kNr * kPanelStride + line % kNr;
    const auto last = std::min<std::int64_t>(kWide, block.lines - line) - 1;
    for (std::int64_t w = 0; w < words; w += kWide) {
      const auto k = w * kPerWord<T>;
      VecWords v[kWide];
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < kWide; ++i) {
        const T* p = b.data + (block.line + line + std::min(i, last)) * b.stride + block.k + k;
        __builtin_prefetch(p + kWide * kPerWord<T>);
        v[i] = read_words(p, i <= last ? block.depth - k : 0);
      }
      transpose(v);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(kWide, words - w); ++i)
        store_words(panel + (w + i) * kNr, v[i]);
    }
  }
}

// Adds the elements of line i of a strip, over k, to sums[i].
template <class T>
void add_line_sums(float* sums, const float* strip, std::int64_t words) {
  for (std::int64_t j = 0; j < kStrip; j += kWide) {
    Vec parts[4] = {};  // four at once, because an addition waits for the one before it
    for (std::int64_t begin = 0; begin < words; begin += 4)
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        if (begin + part >= words) break;
        const VecWords v = load_words(strip + (begin + part) * kStrip + j);
        if constexpr (kPerWord<T> == 2)
          parts[part] += (Vec)(v << 16) + (Vec)(v & 0xffff0000u);
        else
          parts[part] += (Vec)v;
      }
    const Vec sum = (Vec)load_words(sums + j) + ((parts[0] + parts[1]) + (parts[2] + parts[3]));
    store_words(sums + j, (VecWords)sum);
  }
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

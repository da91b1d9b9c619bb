// This file defines blocks of queries and keys: which keys a query sees, packed sizes, and scores.
// It is included only after cpu_begin.h.
//
// Scores are stored transposed, [key, query], so that the lanes of a vector are queries. The
// maximum and the sum of the softmax run down columns, and keys and values are read as they are.
// Near the diagonal, matmuls skip keys that no query of a panel (16 queries) sees.
#pragma once

#include "kernels/attention_tile_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

inline constexpr std::int64_t kBlock = 64;  // queries of a block, and keys of a block
inline constexpr std::int64_t kBlockPanels = kBlock / kPanel;
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
inline constexpr float kLow = -1e30f;  // below every score; finite, so that differences are finite

// Visible holds the keys that each query of a block sees: first to last.
struct Visible {
  alignas(64) std::int32_t first[kBlock], last[kBlock];
  std::int64_t panel_last[kBlockPanels];  // the largest `last` of a panel
  std::int64_t count = 0, panels = 0;
  std::int64_t min_first = 0, max_first = 0, min_last = 0, max_last = 0;

  bool sees_none(std::int64_t query) const { return first[query] > last[query]; }
};

// Returns the keys that the queries [begin, begin + count) see. If `first` is nullptr, a query sees
// keys from 0 on; if `last` is, up to its own index.
inline Visible visible_keys(const std::int32_t* first, const std::int32_t* last, std::int64_t begin,
                            std::int64_t count) {
  Visible v;
  v.count = count;
  v.panels = divide_up(count, kPanel);
  v.min_first = v.min_last = INT32_MAX;
  for (auto& l : v.panel_last)
    l = -1;
  for (std::int64_t i = 0; i < kBlock; ++i) {
    v.first[i] = 0;
    v.last[i] = -1;
    if (i >= count) continue;
    if (first != nullptr) v.first[i] = first[begin + i];
    v.last[i] = last != nullptr ? last[begin + i] : static_cast<std::int32_t>(begin + i);
    v.min_first = std::min<std::int64_t>(v.min_first, v.first[i]);
    v.max_first = std::max<std::int64_t>(v.max_first, v.first[i]);
    v.min_last = std::min<std::int64_t>(v.min_last, v.last[i]);
    v.max_last = std::max<std::int64_t>(v.max_last, v.last[i]);
    v.panel_last[i / kPanel] = std::max<std::int64_t>(v.panel_last[i / kPanel], v.last[i]);
  }
  return v;
}

// Returns the first keys of sequence b in document_start [B, T], or nullptr if it is absent.
inline const std::int32_t* first_keys(ConstTensor document_start, std::int64_t b) {
  if (!document_start) return nullptr;
  return document_start.as<std::int32_t>() + b * document_start.shape[1];
}

struct Range {
  std::int64_t begin, count;
};
inline bool none_visible(const Visible& v, Range keys) {
  return keys.begin > v.max_last || keys.begin + keys.count <= v.min_first;
}
inline bool all_visible(const Visible& v, Range keys) {
  return keys.count == kBlock && v.max_first <= keys.begin &&
         keys.begin + keys.count - 1 <= v.min_last;
}
// Returns the number of keys, from the block's first on, that some query of the panel may see.
inline std::int64_t keys_of_panel(const Visible& v, Range keys, std::int64_t panel) {
  return std::clamp<std::int64_t>(v.panel_last[panel] - keys.begin + 1, 0, keys.count);
}
// Returns the first panel that may see the block's key r or a later one.
inline std::int64_t panel_of_key(const Visible& v, Range keys, std::int64_t r) {
  std::int64_t panel = 0;
  while (panel < v.panels && v.panel_last[panel] < keys.begin + r)
    ++panel;
  return panel;
}

// HeadSize holds the packed sizes of a head.
template <class Word>
struct HeadSize {
  explicit HeadSize(std::int64_t size)
      : K(size),
        columns(round_up(K, kPanel)),
        words(divide_up(K, kPerWord<Word>)),
        row(round_up(words, kPanel)) {}
  std::int64_t K;
  std::int64_t columns;  // of a matrix [., K] with K along the lanes
  std::int64_t words;    // depth of a matmul over K
  std::int64_t row;      // words of a packed row
};

// Computes scores [kBlock, kBlock] = rows times columns. Rows are keys or values; columns are
// queries or dout, packed transposed.
template <class Word>
void block_scores(float* scores, const Word* rows, const Word* columns, const HeadSize<Word>& size,
                  const Visible& v, Range keys) {
  const auto step = all_visible(v, keys) ? keys.count : kPanel;
  for (std::int64_t r = 0; r < keys.count; r += step) {
    const auto panel = panel_of_key(v, keys, r);
    product<Sum::fresh, Layout::rows, Word>(
        {scores + r * kBlock + panel * kPanel, kBlock, rows + r * size.row, size.row,
         columns + panel * kPanel, kBlock, size.words},
        std::min(step, keys.count - r), v.panels - panel);
  }
}

LOCKSTEP_INLINE auto sees(const Visible& v, std::int64_t column, std::int64_t key) {
  const auto j = static_cast<std::int32_t>(key);
  return (read<IntVector>(v.first + column) <= j) & (read<IntVector>(v.last + column) >= j);
}

// Carver takes pieces of a block of memory, aligned to cache lines. Without memory it only counts
// bytes.
struct Carver {
  std::byte* memory = nullptr;
  std::int64_t used = 0;
  template <class T>
  T* take(std::int64_t n) {
    auto* p = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
    used += round_up(n * static_cast<std::int64_t>(sizeof(T)), 64);
    return p;
  }
};

// Stores to[i, :] = factor * from[i, :] over K columns.
template <class E>
void store_rows(E* to, std::int64_t to_stride, const float* from, std::int64_t from_stride,
                std::int64_t rows, std::int64_t K, float factor) {
  for (std::int64_t i = 0; i < rows; ++i, to += to_stride, from += from_stride)
    for_vectors(K,
                [&](std::int64_t k, std::int64_t n) { store(to + k, load(from + k) * factor, n); });
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

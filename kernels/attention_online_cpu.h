// This file computes attention with an online softmax (Dao 2023, arXiv:2307.08691, algorithm 1). It
// is included only after cpu_begin.h.
#pragma once

#include "kernels/attention_blocks_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// OnlineTask is the queries [begin, begin + count) of a sequence for the query heads of one kv
// head, and their keys.
template <class E>
struct OnlineTask {
  const E *q, *k, *v;  // of token 0: the group's first query head, the kv head
  E* out;              // of token 0: the group's first head
  float* lse;          // of token 0 and the group's first head, or null
  std::int64_t q_stride, kv_stride, out_stride;  // from token to token
  std::int64_t lse_stride;                       // from head to head
  const std::int32_t *first, *last;              // see visible_keys
  std::int64_t heads, begin, count, K;
};

inline constexpr std::int64_t kMaxTaskBlocks = 4;  // blocks of queries that share packed keys

// OnlineScratch is the memory of a task. A state belongs to a head's block of queries while the
// task loops over keys. out is the sum over j of 2^(score - maximum) v, with scores as exponents
// of 2.
template <class Word>
struct OnlineScratch {
  OnlineScratch(Carver& carver, const HeadSize<Word>& size, std::int64_t states)
      : k(carver.take<Word>(kBlock * size.row)),
        v(carver.take<Word>(kBlock / kPerWord<Word> * size.columns)),
        scores(carver.take<float>(kBlock * kBlock)),
        p(carver.take<Word>(kPerWord<Word> == 1 ? 0 : kBlock / kPerWord<Word> * kBlock)),
        rescale(carver.take<float>(kBlock)),
        q(carver.take<Word>(states * size.row * kBlock)),
        out(carver.take<float>(states * kBlock * size.columns)),
        maximum(carver.take<float>(states * kBlock)),
        sum(carver.take<float>(states * kBlock)) {
    if constexpr (kPerWord<Word> == 1) p = scores;
  }
  Word *k, *v;    // a block's keys [kBlock, row], its values stacked [., columns]
  float* scores;  // [kBlock keys, kBlock queries]
  Word* p;        // their exponentials, stacked; in place if a word is a float
  float* rescale;
  Word* q;               // [states, row, kBlock], transposed
  float* out;            // [states, kBlock, columns]
  float *maximum, *sum;  // [states, kBlock]
};

LOCKSTEP_INLINE void write_stacked(float* p, Vector lower, Vector upper) {
  write(p, lower);
  write(p + kBlock, upper);
}

// Applies one step of the softmax to U vectors of columns from `column` on. It updates maximum and
// sum, sets rescale to 2^(old maximum - new), and sets p to the exponentials of `keys` rows.
template <int U, bool kMasked, class Word>
LOCKSTEP_INLINE void online_softmax(const OnlineScratch<Word>& s, float* maximum, float* sum,
                                    std::int64_t column, float scale, const Visible& visible,
                                    std::int64_t first_key, std::int64_t keys) {
  const float* scores = s.scores + column;
  Vector high[U], total[U] = {};
  for (auto& h : high)
    h = Vector{} - INFINITY;
  for (std::int64_t j = 0; j < keys; ++j)
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      Vector x = read<Vector>(scores + j * kBlock + u * kWidth);
      if (kMasked) x = sees(visible, column + u * kWidth, first_key + j) ? x : Vector{} - INFINITY;
      high[u] = larger(high[u], x);
    }
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
    const Vector old = read<Vector>(maximum + column + u * kWidth);
    high[u] = larger(old, high[u] * scale);
    write(maximum + column + u * kWidth, high[u]);
    write(s.rescale + column + u * kWidth, exp2(old - high[u]));
  }
  const auto exponential = [&](std::int64_t j, int u) {
    const Vector x = read<Vector>(scores + j * kBlock + u * kWidth);
    Vector p = exp2(x * scale - high[u]);
    if (kMasked) p = sees(visible, column + u * kWidth, first_key + j) ? p : Vector{};
    total[u] += p;
    return p;
  };
  for (std::int64_t j = 0; j < keys; j += 2)  // an odd last row has a masked neighbour
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) {
      const Vector lower = exponential(j, u), upper = exponential(j + 1, u);
      write_stacked(s.p + j / kPerWord<Word> * kBlock + column + u * kWidth, lower, upper);
    }
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
    float* at = sum + column + u * kWidth;
    write(at, read<Vector>(at) * read<Vector>(s.rescale + column + u * kWidth) + total[u]);
  }
}

// Advances one state by one block of keys.
template <class Word>
void online_block(const OnlineScratch<Word>& s, const HeadSize<Word>& size, std::int64_t state,
                  const Visible& visible, Range keys, float scale) {
  float *maximum = s.maximum + state * kBlock, *sum = s.sum + state * kBlock;
  float* out = s.out + state * kBlock * size.columns;
  block_scores(s.scores, s.k, s.q + state * size.row * kBlock, size, visible, keys);
  const auto add_values = [&](std::int64_t row, std::int64_t rows, std::int64_t depth) {
    product<Sum::scale_and_add, Layout::across, Word>(
        {out + row * size.columns, size.columns, s.p + row, kBlock, s.v, size.columns,
         divide_up(depth, kPerWord<Word>), s.rescale + row},
        rows, size.columns / kPanel);
  };
  if (all_visible(visible, keys)) {
    constexpr int kVectors = std::min<int>(4, kBlock / kWidth);
    for (std::int64_t column = 0; column < kBlock; column += kVectors * kWidth)
      online_softmax<kVectors, false>(s, maximum, sum, column, scale, visible, keys.begin,
                                      keys.count);
    add_values(0, visible.count, keys.count);
    return;
  }
  for (std::int64_t panel = 0; panel < visible.panels; ++panel) {
    const auto count = keys_of_panel(visible, keys, panel);
    if (count == 0) continue;
    online_softmax<kPanel / kWidth, true>(s, maximum, sum, panel * kPanel, scale, visible,
                                          keys.begin, count);
    add_values(panel * kPanel, std::min<std::int64_t>(kPanel, visible.count - panel * kPanel),
               count);
  }
}

template <class E, class Word>
void finish_state(const OnlineTask<E>& task, const OnlineScratch<Word>& s,
                  const HeadSize<Word>& size, std::int64_t state, std::int64_t head,
                  std::int64_t begin, const Visible& visible) {
  for (std::int64_t i = 0; i < visible.count; ++i) {
    const float* row = s.out + (state * kBlock + i) * size.columns;
    E* to = task.out + (begin + i) * task.out_stride + head * size.K;
    const float factor = visible.sees_none(i) ? 0.0f : 1.0f / s.sum[state * kBlock + i];
    for_vectors(size.K,
                [&](std::int64_t k, std::int64_t n) { store(to + k, load(row + k) * factor, n); });
  }
  if (task.lse == nullptr) return;
  float* lse = s.maximum + state * kBlock;
  for (std::int64_t i = 0; i < kBlock; i += kWidth)
    write(lse + i, (read<Vector>(lse + i) + log2(read<Vector>(s.sum + state * kBlock + i))) * kLn2);
  for (std::int64_t i = 0; i < visible.count; ++i)
    if (visible.sees_none(i)) lse[i] = -INFINITY;
  std::copy_n(lse, visible.count, task.lse + head * task.lse_stride + begin);
}

template <class E, class Word = typename WordOf<E>::type>
void attend_online(const OnlineTask<E>& task, Carver carver) {
  const HeadSize<Word> size(task.K);
  const auto blocks = divide_up(task.count, kBlock);
  const OnlineScratch<Word> s(carver, size, blocks * task.heads);
  const float scale = kLog2E / std::sqrt(static_cast<float>(task.K));
  Visible visible[kMaxTaskBlocks];
  std::int64_t first = INT32_MAX, end = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const auto begin = task.begin + b * kBlock;
    visible[b] = visible_keys(task.first, task.last, begin,
                              std::min<std::int64_t>(kBlock, task.begin + task.count - begin));
    first = std::min(first, visible[b].min_first / kBlock * kBlock);
    end = std::max(end, visible[b].max_last + 1);
    for (std::int64_t h = 0; h < task.heads; ++h) {
      const auto state = b * task.heads + h;
      pack_transposed(s.q + state * size.row * kBlock, kBlock,
                      task.q + begin * task.q_stride + h * size.K, task.q_stride, visible[b].count,
                      size.K);
      std::fill_n(s.out + state * kBlock * size.columns, kBlock * size.columns, 0.0f);
      std::fill_n(s.maximum + state * kBlock, kBlock, kLow);
      std::fill_n(s.sum + state * kBlock, kBlock, 0.0f);
    }
  }
  for (auto j = first; j < end; j += kBlock) {
    const Range keys{j, std::min<std::int64_t>(kBlock, end - j)};
    pack_rows(s.k, size.row, task.k + j * task.kv_stride, task.kv_stride, keys.count, size.K);
    pack_stacked(s.v, size.columns, task.v + j * task.kv_stride, task.kv_stride, keys.count,
                 size.K);
    for (std::int64_t b = 0; b < blocks; ++b)
      for (std::int64_t h = 0; h < task.heads && !none_visible(visible[b], keys); ++h)
        online_block(s, size, b * task.heads + h, visible[b], keys, scale);
  }
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::int64_t h = 0; h < task.heads; ++h)
      finish_state(task, s, size, b * task.heads + h, h, task.begin + b * kBlock, visible[b]);
}

// Returns the number of blocks of queries that share one packing of the keys. Results do not depend
// on it.
inline std::int64_t task_blocks(std::int64_t sequences_and_heads, std::int64_t heads_in_group,
                                std::int64_t T, int threads) {
  auto blocks = std::clamp<std::int64_t>(8 / heads_in_group, 1, kMaxTaskBlocks);
  while (blocks > 1 && sequences_and_heads * T < std::int64_t{4} * threads * blocks * kBlock)
    blocks /= 2;
  return blocks;
}

template <class E>
std::int64_t online_bytes(std::int64_t states, std::int64_t K) {
  using Word = typename WordOf<E>::type;
  Carver carver;
  const OnlineScratch<Word> counted(carver, HeadSize<Word>(K), states);
  return carver.used;
}

}  // namespace
}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

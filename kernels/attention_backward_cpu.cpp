// This file computes attention backward (Dao 2023, arXiv:2307.08691, algorithm 2). Queries are the
// outer loop and keys the inner loop. A task is a kv head with all query heads of its group. It
// sums the gradients of keys and values in its own memory. If this gives too few tasks for the
// threads, two passes divide ranges of tokens instead: one for keys and values, one for queries.
// They take 7/5 of the work. Both ways add each gradient over the same blocks in the same order, so
// the bits do not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/integer.h"
#include "kernels/attention.h"

#include "kernels/cpu_begin.h"  // after every other include

#include "kernels/attention_blocks_cpu.h"

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

// BackwardTask is a kv head of a sequence. Pointers are to token 0, and to the first head of the
// group.
template <class E>
struct BackwardTask {
  const E *q, *k, *v, *out, *dout;
  E *dq, *dk, *dv;
  const float* lse;
  std::int64_t qkv_stride, out_stride;  // from token to token
  std::int64_t lse_stride;              // from head to head
  const std::int32_t* first;            // see visible_keys
  std::int64_t heads, K;
  Range keys, queries;  // begin at a multiple of kBlock
  bool for_keys, for_queries;
};

template <class Word>
struct BackwardScratch {
  BackwardScratch(Carver& carver, const HeadSize<Word>& size, std::int64_t keys)
      : k(carver.take<Word>(round_up(keys, kBlock) * size.row)),
        v(carver.take<Word>(round_up(keys, kBlock) * size.row)),
        k_stacked(kPerWord<Word> == 1
                      ? k
                      : carver.take<Word>(round_up(keys, kBlock) / kPerWord<Word> * size.columns)),
        dk(carver.take<float>(round_up(keys, kBlock) * size.columns)),
        dv(carver.take<float>(round_up(keys, kBlock) * size.columns)),
        q(carver.take<Word>(size.row * kBlock)),
        dout(carver.take<Word>(size.row * kBlock)),
        q_stacked(carver.take<Word>(kStacked * size.columns)),
        dout_stacked(carver.take<Word>(kStacked * size.columns)),
        dq(carver.take<float>(kBlock * size.columns)),
        lse(carver.take<float>(kBlock)),
        delta(carver.take<float>(kBlock)),
        scores(carver.take<float>(kBlock * kBlock)),
        dp(carver.take<float>(kBlock * kBlock)),
        p(carver.take<Word>(kBlock * kStacked)),
        ds(carver.take<Word>(kBlock * kStacked)),
        ds_stacked(carver.take<Word>(kBlock * kStacked)) {
    if constexpr (kPerWord<Word> == 1) {
      p = scores;
      ds = ds_stacked = dp;
    }
  }
  static constexpr std::int64_t kStacked = kBlock / kPerWord<Word>;

  Word *k, *v;                     // [keys, row]
  Word* k_stacked;                 // [keys / kPerWord, columns]
  float *dk, *dv;                  // [keys, columns]
  Word *q, *dout;                  // [row, kBlock], transposed
  Word *q_stacked, *dout_stacked;  // [kStacked, columns]
  float* dq;                       // [kBlock, columns]
  float *lse, *delta;              // [kBlock]; lse as exponents of 2
  float *scores, *dp;              // [kBlock keys, kBlock queries]
  Word *p, *ds;      // the same in words [kBlock, kStacked]; in place if words are floats
  Word* ds_stacked;  // [kStacked, kBlock]
};

// Computes p = e^(scores - lse) and ds = p (dp - delta); both are 0 if a query does not see the
// key.
template <bool kMasked, class Word>
void probabilities(const BackwardScratch<Word>& s, float scale, const Visible& visible,
                   Range keys) {
  constexpr std::int64_t kRows = 2, kVectors = 2;
  constexpr auto kStacked = BackwardScratch<Word>::kStacked;
  for (std::int64_t j = 0; j < keys.count; j += kRows)
    for (std::int64_t i = 0; i < kBlock; i += kVectors * kWidth) {
      Vector p[kRows][kVectors], ds[kRows][kVectors];
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int u = 0; u < kVectors; ++u) {
          const auto column = i + u * kWidth, at = (j + r) * kBlock + column;
          p[r][u] = exp2(read<Vector>(s.scores + at) * scale - read<Vector>(s.lse + column));
          if (kMasked) p[r][u] = sees(visible, column, keys.begin + j + r) ? p[r][u] : Vector{};
          ds[r][u] = p[r][u] * (read<Vector>(s.dp + at) - read<Vector>(s.delta + column));
          if (kMasked) ds[r][u] = sees(visible, column, keys.begin + j + r) ? ds[r][u] : Vector{};
        }
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) {
        write_row(s.p + (j + r) * kStacked + i / kPerWord<Word>, p[r][0], p[r][1]);
        write_row(s.ds + (j + r) * kStacked + i / kPerWord<Word>, ds[r][0], ds[r][1]);
      }
      if constexpr (kPerWord<Word> == 2)
        for (int u = 0; u < kVectors; ++u)
          write_stacked(s.ds_stacked + j / kPerWord<Word> * kBlock + i + u * kWidth, ds[0][u],
                        ds[1][u]);
    }
}

// Adds the gradients of one block of queries and one block of keys, the task's keys from `at` on.
template <class E, class Word>
void backward_block(const BackwardTask<E>& task, const BackwardScratch<Word>& s,
                    const HeadSize<Word>& size, const Visible& visible, Range keys,
                    std::int64_t at) {
  constexpr auto kPer = kPerWord<Word>;
  const auto panels = size.columns / kPanel;
  const bool all = all_visible(visible, keys);
  const float scale = kLog2E / std::sqrt(static_cast<float>(size.K));
  block_scores(s.scores, s.k + at * size.row, s.q, size, visible, keys);
  block_scores(s.dp, s.v + at * size.row, s.dout, size, visible, keys);
  if (all)
    probabilities<false>(s, scale, visible, keys);
  else
    probabilities<true>(s, scale, visible, keys);
  for (std::int64_t r = 0; r < keys.count && task.for_keys; r += all ? kBlock : kPanel) {
    const auto rows = all ? keys.count : std::min<std::int64_t>(kPanel, keys.count - r);
    const auto skipped = panel_of_key(visible, keys, r) * kPanel / kPer;
    const auto add = [&](float* d, const Word* a, const Word* b) {
      const auto depth = divide_up(visible.count, kPer) - skipped;
      product<Sum::add, Layout::rows, Word>(
          {d + (at + r) * size.columns, size.columns, a + r * s.kStacked + skipped, s.kStacked,
           b + skipped * size.columns, size.columns, depth},
          rows, panels);
    };
    add(s.dv, s.p, s.dout_stacked);
    add(s.dk, s.ds, s.q_stacked);
  }
  for (std::int64_t i = 0; i < visible.count && task.for_queries; i += all ? kBlock : kPanel) {
    const auto depth = all ? keys.count : keys_of_panel(visible, keys, i / kPanel);
    product<Sum::add, Layout::across, Word>(
        {s.dq + i * size.columns, size.columns, s.ds_stacked + i, kBlock,
         s.k_stacked + at / kPer * size.columns, size.columns, divide_up(depth, kPer)},
        all ? visible.count : std::min<std::int64_t>(kPanel, visible.count - i), panels);
  }
}

// Packs q and dout of a head's block of queries, computes lse and delta, and clears dq.
template <class E, class Word>
void load_queries(const BackwardTask<E>& task, const BackwardScratch<Word>& s,
                  const HeadSize<Word>& size, std::int64_t head, Range queries) {
  const E* q = task.q + queries.begin * task.qkv_stride + head * size.K;
  const E* dout = task.dout + queries.begin * task.out_stride + head * size.K;
  const E* out = task.out + queries.begin * task.out_stride + head * size.K;
  pack_transposed(s.q, kBlock, q, task.qkv_stride, queries.count, size.K);
  pack_transposed(s.dout, kBlock, dout, task.out_stride, queries.count, size.K);
  if (task.for_keys) {
    pack_stacked(s.q_stacked, size.columns, q, task.qkv_stride, queries.count, size.K);
    pack_stacked(s.dout_stacked, size.columns, dout, task.out_stride, queries.count, size.K);
  }
  const float* lse = task.lse + head * task.lse_stride + queries.begin;
  for (std::int64_t i = 0; i < kBlock; ++i) {
    const bool sees_any = i < queries.count && lse[i] != -INFINITY;
    s.lse[i] = sees_any ? lse[i] * kLog2E : -kLow;  // p = 0 for all others
    Floats sum{};
    if (i < queries.count)
      for_vectors(size.K, [&](std::int64_t k, std::int64_t n) {
        sum += load(out + i * task.out_stride + k, n) * load(dout + i * task.out_stride + k, n);
      });
    s.delta[i] = total(sum);
  }
  std::fill_n(s.dq, kBlock * size.columns, 0.0f);
}

template <class E, class Word = typename WordOf<E>::type>
void backward_task(const BackwardTask<E>& task, Carver carver) {
  const HeadSize<Word> size(task.K);
  const auto keys = task.keys, queries = task.queries;
  const BackwardScratch<Word> s(carver, size, keys.count);
  const float scale = 1.0f / std::sqrt(static_cast<float>(size.K));
  const auto first_key = keys.begin * task.qkv_stride;
  pack_rows(s.k, size.row, task.k + first_key, task.qkv_stride, keys.count, size.K);
  pack_rows(s.v, size.row, task.v + first_key, task.qkv_stride, keys.count, size.K);
  if constexpr (kPerWord<Word> == 2)
    pack_stacked(s.k_stacked, size.columns, task.k + first_key, task.qkv_stride, keys.count,
                 size.K);
  std::fill_n(s.dk, round_up(keys.count, kBlock) * size.columns, 0.0f);
  std::fill_n(s.dv, round_up(keys.count, kBlock) * size.columns, 0.0f);
  for (std::int64_t h = 0; h < task.heads; ++h)
    for (auto i = queries.begin; i < queries.begin + queries.count; i += kBlock) {
      const Range block{i, std::min<std::int64_t>(kBlock, queries.begin + queries.count - i)};
      const auto visible = visible_keys(task.first, nullptr, i, block.count);
      if (none_visible(visible, keys) && !task.for_queries) continue;  // if for_queries, dq is 0
      load_queries(task, s, size, h, block);
      for (std::int64_t at = 0; at < keys.count; at += kBlock) {
        const Range some{keys.begin + at, std::min<std::int64_t>(kBlock, keys.count - at)};
        if (!none_visible(visible, some)) backward_block(task, s, size, visible, some, at);
      }
      if (task.for_queries)
        store_rows(task.dq + i * task.qkv_stride + h * size.K, task.qkv_stride, s.dq, size.columns,
                   block.count, size.K, scale);
    }
  if (!task.for_keys) return;
  store_rows(task.dk + first_key, task.qkv_stride, s.dk, size.columns, keys.count, size.K, scale);
  store_rows(task.dv + first_key, task.qkv_stride, s.dv, size.columns, keys.count, size.K, 1.0f);
}

template <class E>
std::int64_t backward_bytes(std::int64_t keys, std::int64_t K) {
  using Word = typename WordOf<E>::type;
  Carver carver;
  const BackwardScratch<Word> counted(carver, HeadSize<Word>(K), keys);
  return carver.used;
}

constexpr std::int64_t kPassTokens = 256;  // tokens of a task in two passes

// Returns whether one pass keeps the threads busy for at least 5/7 of the time.
bool one_pass(std::int64_t tasks, int threads, std::int64_t T) {
  const auto rounds = divide_up(tasks, threads);
  return T <= kBlock || 7 * tasks >= 5 * rounds * threads;
}

}  // namespace

void attention_backward(Stream& stream, Arena& scratch, Tensor dqkv, ConstTensor dout,
                        ConstTensor out, ConstTensor lse, ConstTensor qkv,
                        ConstTensor document_start) {
  const auto B = lse.shape[0], T = lse.shape[2];
  const auto H = out.shape[1], K = out.shape[2], all = qkv.shape[1], G = (all - H) / 2;
  const auto heads = H / G;
  with_float(qkv.dtype, [&]<class E>(E) {
    const Arena::Scope scope(scratch);
    const auto bytes = backward_bytes<E>(T, K);
    const auto memory = scratch.allocate("attention", DType::uint8, {stream.threads(), bytes});
    if (stream.is_measuring()) return;
    const auto run = [&](std::int64_t task, int thread, Range keys, Range queries, bool for_keys,
                         bool for_queries) {
      const auto b = task / G, g = task % G;
      const auto query = (b * T * all + g * heads) * K, key = (b * T * all + H + g) * K;
      const auto output = (b * T * H + g * heads) * K;
      backward_task<E>({.q = qkv.as<E>() + query,
                        .k = qkv.as<E>() + key,
                        .v = qkv.as<E>() + key + G * K,
                        .out = out.as<E>() + output,
                        .dout = dout.as<E>() + output,
                        .dq = dqkv.as<E>() + query,
                        .dk = dqkv.as<E>() + key,
                        .dv = dqkv.as<E>() + key + G * K,
                        .lse = lse.as<float>() + (b * H + g * heads) * T,
                        .qkv_stride = all * K,
                        .out_stride = H * K,
                        .lse_stride = T,
                        .first = first_keys(document_start, b),
                        .heads = heads,
                        .K = K,
                        .keys = keys,
                        .queries = queries,
                        .for_keys = for_keys,
                        .for_queries = for_queries},
                       {memory.data + thread * bytes});
    };
    if (one_pass(B * G, stream.threads(), T)) {
      stream.parallel_for(B * G, [&](std::int64_t task, int thread) {
        run(task, thread, {0, T}, {0, T}, true, true);
      });
      return;
    }
    const auto chunks = divide_up(T, kPassTokens);
    stream.parallel_for(2 * chunks * B * G, [&](std::int64_t task, int thread) {
      const auto chunk = task / 2 / (B * G), head = task / 2 % (B * G);
      const bool keys = task % 2 == 0;  // the costliest ranges first: early keys, late queries
      const auto begin = (keys ? chunk : chunks - 1 - chunk) * kPassTokens;
      const auto end = std::min(begin + kPassTokens, T);
      if (keys)
        run(head, thread, {begin, end - begin}, {begin, T - begin}, true, false);
      else
        run(head, thread, {0, end}, {begin, end - begin}, false, true);
    });
  });
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

// Elements are updated in blocks of 64, aligned to their index in the parameter. A block is four
// vectors, and eight draws of random bits for each tensor that is rounded stochastically. In a
// column shard, random bits are in order only within a row, so each row is updated separately.
#include <algorithm>
#include <type_traits>

#include "core/integer.h"
#include "kernels/adamw_control.h"
#include "kernels/elementwise.h"
#include "kernels/parallel.h"
#include "kernels/reduce.h"

#include "kernels/cpu_begin.h"  // after every other include

namespace lockstep::LOCKSTEP_CPU_NAMESPACE {
namespace {

constexpr std::int64_t kUpdateBlock = 64;
constexpr int kUpdateVectors = kUpdateBlock / kLanes;

// Common holds the values that all elements of a run share.
struct Common {
  float scale, beta1, beta2, correction1, correction2, epsilon, rate, decay;
  std::uint64_t seed, purpose, step;
};

Common common_of(const AdamWRun& run, const AdamWScalars& scalars, const AdamWConfig& config) {
  const float* control = scalars.control.as<float>();
  const float rate = *scalars.learning_rate.as<float>();
  const auto step = static_cast<std::uint64_t>(*scalars.step.as<std::int32_t>());
  return {control[0],
          config.beta1,
          config.beta2,
          control[1],
          control[2],
          config.epsilon,
          rate,
          run.decay ? rate * config.weight_decay : 0.0f,
          config.seed,
          run.purpose,
          (step + 1) << 32};
}

// RandomBits holds 16 random bits for each of the 64 elements of a block. t is the number of the
// tensor in the counter (adamw.h).
struct RandomBits {
  Words vector[kUpdateVectors];
};
LOCKSTEP_INLINE RandomBits random_bits(const Common& c, std::uint64_t t, std::int64_t block) {
  const auto first = t << 62 | c.step | static_cast<std::uint64_t>(block) * 8;
  std::uint16_t bits[kUpdateBlock];
  store_draws(bits, philox_lanes(c.seed, c.purpose, counters_from(first)));
  RandomBits r;
  for (int i = 0; i < kUpdateVectors; ++i)
    r.vector[i] = widen_lanes<Words>(bits + i * kLanes);
  return r;
}

// State holds one vector each of w, m and v.
struct State {
  Floats w, m, v;
};
LOCKSTEP_INLINE State advance(const Common& c, State s, Floats gradient) {
  const Floats g = gradient * c.scale;
  s.m = c.beta1 * s.m + (1.0f - c.beta1) * g;
  s.v = c.beta2 * s.v + (1.0f - c.beta2) * g * g;
  const Floats direction = s.m * c.correction1 / (sqrt(s.v * c.correction2) + c.epsilon);
  s.w = s.w - c.rate * direction - c.decay * s.w;
  return s;
}

LOCKSTEP_INLINE void store_rounded(float* p, Floats v, Words) {
  store(p, v);
}
LOCKSTEP_INLINE void store_rounded(BFloat16* p, Floats v, Words bits) {
  narrow(&p->bits, round_stochastically(v, bits));
}

// Pointers is a run as pointers. W and M are the types of weight and moments.
template <class W, class M>
struct Pointers {
  W* weight;
  float* master;
  M* m;
  M* v;
  const float* grad;
};

// Updates the 64 elements of block `block`, which begin at element `begin` of the pointers.
template <bool kMaster, class W, class M>
LOCKSTEP_INLINE void update_block(const Common& c, const Pointers<W, M>& p, std::int64_t block,
                                  std::int64_t begin) {
  constexpr bool kRoundWeight = !kMaster && std::is_same_v<W, BFloat16>;
  constexpr bool kRoundMoments = std::is_same_v<M, BFloat16>;
  RandomBits bits_w{}, bits_m{}, bits_v{};
  if constexpr (kRoundWeight) bits_w = random_bits(c, 0, block);
  if constexpr (kRoundMoments) {
    bits_m = random_bits(c, 1, block);
    bits_v = random_bits(c, 2, block);
  }
  for (int i = 0; i < kUpdateVectors; ++i) {
    const auto e = begin + i * kLanes;
    State s{};
    if constexpr (kMaster)
      s.w = load(p.master + e);
    else
      s.w = load(p.weight + e);
    s.m = load(p.m + e);
    s.v = load(p.v + e);
    s = advance(c, s, load(p.grad + e));
    if constexpr (kMaster) {
      store(p.master + e, s.w);
      store(p.weight + e, s.w);
    } else {
      store_rounded(p.weight + e, s.w, bits_w.vector[i]);
    }
    store_rounded(p.m + e, s.m, bits_m.vector[i]);
    store_rounded(p.v + e, s.v, bits_v.vector[i]);
  }
}

template <class T>
void copy(T* to, const T* from, std::int64_t n) {
  std::copy_n(from, n, to);
}

// Updates the elements [begin, begin + size) of the run, which are the part of their block from
// element `offset` on. They go through a whole block on the stack.
template <bool kMaster, class W, class M>
void update_part(const Common& c, const Pointers<W, M>& p, std::int64_t block, std::int64_t begin,
                 std::int64_t offset, std::int64_t size) {
  W weight[kUpdateBlock] = {};
  float master[kUpdateBlock] = {}, grad[kUpdateBlock] = {};
  M m[kUpdateBlock] = {}, v[kUpdateBlock] = {};
  copy(weight + offset, p.weight + begin, size);
  if constexpr (kMaster) copy(master + offset, p.master + begin, size);
  copy(m + offset, p.m + begin, size);
  copy(v + offset, p.v + begin, size);
  copy(grad + offset, p.grad + begin, size);
  update_block<kMaster, W, M>(c, {weight, master, m, v, grad}, block, 0);
  copy(p.weight + begin, weight + offset, size);
  if constexpr (kMaster) copy(p.master + begin, master + offset, size);
  copy(p.m + begin, m + offset, size);
  copy(p.v + begin, v + offset, size);
}

// Updates those of the elements [first, last) of the parameter that lie in the blocks [from, to).
// `first` is element 0 of the pointers.
template <bool kMaster, class W, class M>
void update_blocks(const Common& c, const Pointers<W, M>& p, std::int64_t first, std::int64_t last,
                   std::int64_t from, std::int64_t to) {
  for (auto block = from; block < to; ++block) {
    const auto begin = std::max(first, block * kUpdateBlock);
    const auto size = std::min(last, (block + 1) * kUpdateBlock) - begin;
    if (size == kUpdateBlock)
      update_block<kMaster>(c, p, block, begin - first);
    else
      update_part<kMaster>(c, p, block, begin - first, begin - block * kUpdateBlock, size);
  }
}

template <bool kMaster, class W, class M>
void update_run(Stream& stream, const AdamWRun& run, const Common& c) {
  constexpr bool kRounds = (std::is_same_v<W, BFloat16> && !kMaster) || std::is_same_v<M, BFloat16>;
  const auto pointers = [&](std::int64_t i) {
    return Pointers<W, M>{run.weight.as<W>() + i, kMaster ? run.master.as<float>() + i : nullptr,
                          run.m.as<M>() + i, run.v.as<M>() + i, run.grad.as<float>() + i};
  };
  const auto first = run.first_index, last = first + run.weight.elements();
  const auto& columns = run.columns;
  if (kRounds && columns.count != 0) {
    const auto C = columns.count, skipped = first / C;  // rows before the run
    const auto update_rows = [&](std::int64_t from, std::int64_t to) {
      for (auto row = skipped + from; row < skipped + to; ++row) {
        const auto begin = std::max(first, row * C), end = std::min(last, (row + 1) * C);
        const auto e = columns.first + row * columns.stride + (begin - row * C);
        update_blocks<kMaster>(c, pointers(begin - first), e, e + end - begin, e / kUpdateBlock,
                               divide_up(e + end - begin, kUpdateBlock));
      }
    };
    stream.parallel_ranges(divide_up(last, C) - skipped, divide_up(256 * kUpdateBlock, C),
                           update_rows);
    return;
  }
  const auto skipped = first / kUpdateBlock;  // blocks before the run
  const auto blocks = divide_up(last, kUpdateBlock) - skipped;
  stream.parallel_ranges(blocks, 256, [&](std::int64_t from, std::int64_t to) {
    update_blocks<kMaster>(c, pointers(0), first, last, skipped + from, skipped + to);
  });
}

}  // namespace

void adamw_control(Stream& stream, const AdamWScalars& scalars, const AdamWSums& sums,
                   const AdamWConfig& config) {
  decide_update(scalars.control.as<float>(), scalars.updates.as<std::int32_t>(),
                *sums.squares.as<float>(), *sums.loss.as<float>(),
                *sums.valid_tokens.as<std::int32_t>(), config);
  if (scalars.absmax && scalars.control.as<float>()[3] != 0)
    lockstep::fill(stream, scalars.absmax, 0.0f);
}

void adamw_update(Stream& stream, std::span<const AdamWRun> runs, const AdamWScalars& scalars,
                  const AdamWConfig& config) {
  if (scalars.control.as<float>()[3] == 0) return;
  for (const AdamWRun& run : runs) {
    const auto common = common_of(run, scalars, config);
    with_float(run.weight.dtype, [&]<class W>(W) {
      with_float(run.m.dtype, [&]<class M>(M) {
        if (run.master)
          update_run<true, W, M>(stream, run, common);
        else
          update_run<false, W, M>(stream, run, common);
      });
    });
    if (!run.absmax) continue;
    float& most = *run.absmax.as<float>();
    const float before = most;
    lockstep::absmax(stream, run.absmax, run.weight);
    most = std::max(most, before);
  }
}

}  // namespace lockstep::LOCKSTEP_CPU_NAMESPACE

#include "kernels/cpu_end.h"

// A thread updates a group of 8 neighbours, the elements of one draw of random bits. If nothing is
// rounded stochastically, a group has 4. Groups are aligned to the elements' index in the
// parameter, so that a shard may begin anywhere. A group that lies only partly in the run is
// updated element by element. So is every group of a column shard whose columns are not aligned to
// draws. One launch updates up to 36 runs. They are a parameter of the kernel, in which each block
// finds its run.
#include "core/integer.h"
#include "core/philox.h"
#include "kernels/adamw_control.h"
#include "kernels/device.cuh"
#include "kernels/launch.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRuns = 36;  // per launch: kernel parameters are limited to 4 KiB

__global__ void adamw_control_kernel(float* control, std::int32_t* updates, const float* squares,
                                     const float* loss, const std::int32_t* valid_tokens,
                                     float* absmax, std::int64_t groups, AdamWConfig config) {
  __shared__ bool applied;
  if (threadIdx.x == 0) {
    decide_update(control, updates, *squares, *loss, *valid_tokens, config);
    applied = control[3] != 0.0f;
  }
  __syncthreads();
  for (auto g = static_cast<std::int64_t>(threadIdx.x); applied && g < groups; g += blockDim.x)
    absmax[g] = 0.0f;
}

// Run is AdamWRun as pointers. W and M are the types of weight and moments.
template <class W, class M>
struct Run {
  W* weight;
  float* master;
  M* m;
  M* v;
  const float* grad;
  float* absmax;
  std::int64_t n, first_index;
  std::uint64_t purpose;
  // AdamWRun::Columns: element j, in row r of the part, has e = first_column + j + r * others.
  std::uint64_t rows_of;  // r = j * rows_of / 2^63
  std::int64_t first_column;
  int others;
  float weight_decay;
  bool aligned;  // groups begin at multiples of 16 bytes; a group of 8 is one draw
};

template <class W, class M>
struct Runs {
  Run<W, M> run[kRuns];
  int first_block[kRuns];
  int count = 0, blocks = 0;
};

struct Scalars {
  const float* learning_rate;
  const std::int32_t* step;
  const float* control;
};

// Place locates the random bits of an element: the draw, and the element's index in it.
struct Place {
  std::uint32_t draw, element;
};
template <class W, class M>
__device__ inline Place place_of(const Run<W, M>& run, std::int64_t i) {
  const auto j = run.first_index + i;
  const auto row =
      static_cast<std::int64_t>(__umul64hi(2 * static_cast<std::uint64_t>(j), run.rows_of));
  const auto e = run.first_column + j + row * run.others;
  return {static_cast<std::uint32_t>(e / 8), static_cast<std::uint32_t>(e % 8)};
}

// Common holds the values that all elements of a run share.
struct Common {
  float scale, beta1, beta2, correction1, correction2, epsilon, rate, decay;
  std::uint64_t seed, purpose, step;
};

template <class W, class M>
__device__ inline Common common_of(const Run<W, M>& run, const Scalars& scalars,
                                   const AdamWConfig& config) {
  const float* control = scalars.control;
  const float rate = *scalars.learning_rate;
  const auto step = static_cast<std::uint64_t>(*scalars.step);
  return {control[0],
          config.beta1,
          config.beta2,
          control[1],
          control[2],
          config.epsilon,
          rate,
          rate * run.weight_decay,
          config.seed,
          run.purpose,
          (step + 1) << 32};
}

struct State {
  float w, m, v;
};
// advance calls fmaf explicitly, because groups and single elements must round alike and the
// compiler may choose otherwise. __fdividef is off by up to two units in the last place and saves a
// tenth of the instructions.
__device__ inline State advance(const Common& c, State s, float gradient) {
  const float g = gradient * c.scale;
  s.m = fmaf(c.beta1, s.m, (1.0f - c.beta1) * g);
  s.v = fmaf(c.beta2, s.v, (1.0f - c.beta2) * g * g);
  const float root = sqrtf(s.v * c.correction2);
  const float direction = __fdividef(s.m * c.correction1, root + c.epsilon);
  s.w = fmaf(-c.decay, s.w, fmaf(-c.rate, direction, s.w));
  return s;
}

// Rounds up or down to bf16, by random bits in [0, 2^16). NaN stays NaN.
__device__ inline BFloat16 round_stochastically(float x, std::uint32_t bits) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  return {static_cast<std::uint16_t>((x != x ? u | 0x400000u : u + bits) >> 16)};
}

// Stores the N elements from `place` on: a whole draw, or one element. t is the number of the
// tensor in the counter (adamw.h). Returns the largest magnitude stored.
template <std::uint64_t t, class T, int N>
__device__ inline float store_rounded(T* to, const float (&x)[N], const Common& c, Place place) {
  if constexpr (std::is_same_v<T, float>) {
    store(to, x);
    return largest_of(0.0f, x);
  } else {
    static_assert(N == 8 || N == 1);
    const Philox4 draw = philox(c.seed, c.purpose, t << 62 | c.step | place.draw);
    Pack<T, N> pack;
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto half = N == 8 ? static_cast<unsigned>(i) : place.element;
      pack.v[i] = round_stochastically(x[i], draw[half / 2] >> (half % 2 * 16) & 0xffffu);
      most = fmaxf(most, fabsf(to_float(pack.v[i])));
    }
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
    return most;
  }
}

// Updates the N elements from `i` on. Returns the largest magnitude of their weights.
template <int N, bool kMaster, class W, class M>
__device__ inline float update(const Run<W, M>& run, const Common& c, std::int64_t i) {
  float w[N], m[N], v[N], g[N];
  if constexpr (kMaster)
    load(w, run.master + i);
  else
    load(w, run.weight + i);
  load(m, run.m + i);
  load(v, run.v + i);
  load(g, run.grad + i);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const State s = advance(c, {w[k], m[k], v[k]}, g[k]);
    w[k] = s.w, m[k] = s.m, v[k] = s.v;
  }
  const Place place = place_of(run, i);
  float most = 0.0f;
  if constexpr (kMaster) {
    store(run.master + i, w);
    store(run.weight + i, w);
    most = to_float(from_float<W>(largest_of(0.0f, w)));
  } else {
    most = store_rounded<0>(run.weight + i, w, c, place);
  }
  store_rounded<1>(run.m + i, m, c, place);
  store_rounded<2>(run.v + i, v, c, place);
  return most;
}

// Returns the index of the calling block's run, the last run that begins at or before this block.
template <class W, class M>
__device__ inline int find_run(const Runs<W, M>& runs) {
  int found = 0;
  for (int behind = runs.count; behind - found > 1;) {
    const int middle = (found + behind) / 2;
    (runs.first_block[middle] <= static_cast<int>(blockIdx.x) ? found : behind) = middle;
  }
  return found;
}

// kMost raises absmax if a run has one; without it the kernel needs fewer registers. A draw for
// each tensor fits in 64 registers per thread, which allows four blocks per multiprocessor.
template <int kGroup, bool kMaster, bool kMost, class W, class M>
__global__ void __launch_bounds__(kThreads, kGroup == 8 ? 4 : 1)
    adamw_update_kernel(const __grid_constant__ Runs<W, M> runs, Scalars scalars,
                        AdamWConfig config) {
  if (scalars.control[3] == 0.0f) return;
  const int r = find_run(runs);
  const Run<W, M>& run = runs.run[r];
  const auto block = static_cast<std::int64_t>(blockIdx.x) - runs.first_block[r];
  const auto group = run.first_index / kGroup + block * kThreads + threadIdx.x;
  const auto begin = group * kGroup - run.first_index, end = begin + kGroup;  // in the run
  const Common c = common_of(run, scalars, config);
  float most = 0.0f;
  if (run.aligned && 0 <= begin && end <= run.n) {
    most = update<kGroup, kMaster>(run, c, begin);
  } else {
    for (auto i = std::max<std::int64_t>(begin, 0); i < std::min(end, run.n); ++i)
      most = fmaxf(most, update<1, kMaster>(run, c, i));
  }
  if constexpr (kMost)
    if (run.absmax != nullptr) raise(run.absmax, most);
}

template <int kGroup, class W, class M>
Run<W, M> pointers_of(const AdamWRun& run, const AdamWConfig& config) {
  bool aligned = true;
  for (const ConstTensor& t : {ConstTensor(run.weight), ConstTensor(run.master), ConstTensor(run.m),
                               ConstTensor(run.v), run.grad}) {
    const auto before = run.first_index % kGroup * bytes_per_element(t.dtype);  // before the run
    if (t) aligned = aligned && (reinterpret_cast<std::intptr_t>(t.data) - before) % 16 == 0;
  }
  const auto& [first_column, columns, stride] = run.columns;
  if (kGroup == 8)  // a group is a draw
    aligned = aligned && (first_column | columns | stride) % 8 == 0;
  // 2^63 / columns, rounded up, is too large by at most 1. For j < 2^35 and columns < 2^28 this
  // does not change the row. It is 0 if the run is not divided by columns, because then there is
  // only one row.
  const auto rows_of = columns == 0 ? 0 : (std::uint64_t{1} << 63) / columns + 1;
  return {run.weight.as<W>(),
          run.master ? run.master.as<float>() : nullptr,
          run.m.as<M>(),
          run.v.as<M>(),
          run.grad.as<float>(),
          run.absmax ? run.absmax.as<float>() : nullptr,
          run.weight.elements(),
          run.first_index,
          run.purpose,
          rows_of,
          first_column,
          static_cast<int>(stride - columns),
          run.decay ? config.weight_decay : 0.0f,
          aligned};
}

template <bool kMaster, bool kMost, class W, class M>
void update_runs(Stream& stream, std::span<const AdamWRun> runs, const AdamWScalars& scalars,
                 const AdamWConfig& config) {
  constexpr bool kRounds = (std::is_same_v<W, BFloat16> && !kMaster) || std::is_same_v<M, BFloat16>;
  constexpr int kGroup = kRounds ? 8 : 4;
  static_assert(sizeof(Runs<W, M>) + sizeof(Scalars) + sizeof(AdamWConfig) <= 4096);
  while (!runs.empty()) {
    Runs<W, M> now{};
    for (const AdamWRun& run : runs.first(std::min<std::size_t>(runs.size(), kRuns))) {
      const auto first = run.first_index, last = first + run.weight.elements();
      now.run[now.count] = pointers_of<kGroup, W, M>(run, config);
      now.first_block[now.count++] = now.blocks;
      now.blocks += static_cast<int>(divide_up(divide_up(last, kGroup) - first / kGroup, kThreads));
    }
    runs = runs.subspan(static_cast<std::size_t>(now.count));
    launch(stream, {static_cast<unsigned>(now.blocks), kThreads},
           adamw_update_kernel<kGroup, kMaster, kMost, W, M>, now,
           Scalars{scalars.learning_rate.as<float>(), scalars.step.as<std::int32_t>(),
                   scalars.control.as<float>()},
           config);
  }
}

}  // namespace

void adamw_control(Stream& stream, const AdamWScalars& scalars, const AdamWSums& sums,
                   const AdamWConfig& config) {
  launch(stream, {1, 32}, adamw_control_kernel, scalars.control.as<float>(),
         scalars.updates.as<std::int32_t>(), sums.squares.as<float>(), sums.loss.as<float>(),
         sums.valid_tokens.as<std::int32_t>(),
         scalars.absmax ? scalars.absmax.as<float>() : nullptr,
         scalars.absmax ? scalars.absmax.elements() : 0, config);
}

void adamw_update(Stream& stream, std::span<const AdamWRun> runs, const AdamWScalars& scalars,
                  const AdamWConfig& config) {
  with_float(runs.front().weight.dtype, [&]<class W>(W) {
    with_float(runs.front().m.dtype, [&]<class M>(M) {
      const auto run = [&]<bool kMost>(std::bool_constant<kMost>) {
        if (runs.front().master)
          update_runs<true, kMost, W, M>(stream, runs, scalars, config);
        else
          update_runs<false, kMost, W, M>(stream, runs, scalars, config);
      };
      if (std::any_of(runs.begin(), runs.end(), [](const AdamWRun& r) { return bool(r.absmax); }))
        run(std::true_type{});
      else
        run(std::false_type{});
    });
  });
}

}  // namespace lockstep::cuda

// What a GPU reaches, beside its own copy rate and its own best matrix product, in one run:
//
//   cmake --preset cuda -DLOCKSTEP_BENCHMARKS=ON && cmake --build --preset cuda --target gpu_bench
//   build/cuda/bench/gpu_bench [PART...]                                       (default: all but
//   copy) parts: copy memory matmul fp8 attention gpt2_124m gpt2_1.5b llama_1b llama_8b
//   qwen2_1.5b qwen2_7b
//
// Each figure is of ten calls between two events, best and median of nine rounds, on random numbers
// (zeros draw less power, and run faster). `memory`: traffic of a call (each tensor read or written
// counted once), in percent of the copy. `matmul`, `attention`: TFLOP/s. `matmul` chooses each
// product as a run does, and shows cuBLASLt's first proposal and its best candidate, then the whole
// operator with what was chosen, as a share of that best candidate (goal: 98%). Attention counts
// causal FLOPs: 2 N T H K forward, 5 N T H K backward. The models: whole training steps without a
// loader, enqueued one ahead as a run does; tokens/s, and model FLOPs (causal count) over the known
// peak; where the time of a step goes, from one step whose phases are timed. `idle` is what those
// phases leave of that step (its launches are timed too, which holds a host up), and of the median
// of the other steps (goal: 1%); `host` is the time to enqueue a step, over the step's: where that
// is less than 1, the GPU has work in front of it. `memory` is what was measured for the arena;
// below it stands what was taken from the GPU beside it, at each stage, by differences of what is
// free.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/gpu.h"
#include "core/philox.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/attention_cudnn.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/matmul_fp8.h"
#include "kernels/product_choices.h"
#include "kernels/qk_norm.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "train/gpu_peak.h"
#include "train/memory.h"
#include "train/training.h"

namespace lockstep::bench {
namespace {

constexpr Device kGpu{Device::Kind::cuda, 0};
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

struct Seconds {
  double best = 0, median = 0;
};

class Bench {
 public:
  Stream& stream() { return stream_; }
  Arena& arena() { return arenas_.device; }

  Tensor tensor(const Shape& shape, DType dtype, float std = 1.0f) {
    const Tensor t = arena().allocate("bench", dtype, shape);
    random_normal(stream_, t, {.seed = 1, .purpose = ++draws_, .first_index = 0, .std = std});
    return t;
  }
  Tensor zeros(const Shape& shape, DType dtype) {
    const Tensor t = arena().allocate("bench", dtype, shape);
    fill(stream_, t, 0.0f);
    return t;
  }
  // Numbers from 0 to bound - 1, or those of `value`.
  Tensor integers(const Shape& shape, const std::function<std::int64_t(std::int64_t)>& value) {
    const Arena::Scope scope(arenas_.pinned);
    const Tensor host = arenas_.pinned.allocate("bench", DType::int32, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      host.as<std::int32_t>()[i] = static_cast<std::int32_t>(value(i));
    const Tensor t = arena().allocate("bench", DType::int32, shape);
    stream_.copy(t, host);
    stream_.synchronize();
    return t;
  }
  static std::int64_t any_below(std::int64_t bound, std::int64_t i) {
    return philox(7, 7, static_cast<std::uint64_t>(i))[0] % bound;
  }

  Fp8Matrix fp8(Scaling scaling, const Shape& shape) {
    return {arena().allocate("bench", DType::fp8_e4m3, shape),
            arena().allocate("bench", DType::fp32, scales_shape(scaling, shape)), scaling};
  }

  // Of one call.
  Seconds time(const std::function<void()>& call) {
    constexpr int kCalls = 10, kRounds = 9;
    call();
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) {
      const Event begin = stream_.record_timed();
      for (int i = 0; i < kCalls; ++i)
        call();
      const Event end = stream_.record_timed();
      end.synchronize();
      seconds.push_back(end.seconds_since(begin) / kCalls);
    }
    std::sort(seconds.begin(), seconds.end());
    return {seconds.front(), seconds[seconds.size() / 2]};
  }

 private:
  Stream stream_{kGpu, "bench"};
  Arenas arenas_{kGpu, {.device = 40 * kGiB, .pinned = kGiB}};
  std::uint64_t draws_ = 0;
};

constexpr std::pair<const char*, Scaling> kScalings[] = {
    {"one scale", Scaling::tensor}, {"of rows", Scaling::rows}, {"of blocks", Scaling::blocks}};

double copy_rate(Bench& bench) {  // bytes a second, both directions counted
  const Arena::Scope scope(bench.arena());
  const auto from = bench.tensor({kGiB / 2}, DType::bf16),
             to = bench.zeros({kGiB / 2}, DType::bf16);
  const auto t = bench.time([&] { bench.stream().copy(to, from); });
  const double bytes = 2.0 * static_cast<double>(from.bytes());
  std::printf("copy of 1 GiB: best %.0f, median %.0f GB/s, both directions counted\n",
              bytes / t.best / 1e9, bytes / t.median / 1e9);
  return bytes / t.best;
}

void memory(Bench& bench) {
  const double copy = copy_rate(bench);
  std::printf("\n%-44s %9s %9s %9s %8s\n", "bf16, 16384 tokens", "MB", "best GB/s", "median",
              "of copy");
  const auto show = [&](const std::string& what, std::int64_t bytes,
                        const std::function<void()>& call) {
    const auto t = bench.time(call);
    const auto b = static_cast<double>(bytes);
    std::printf("%-44s %9.1f %9.0f %9.0f %7.1f%%\n", what.c_str(), b / 1e6, b / t.best / 1e9,
                b / t.median / 1e9, 100 * b / t.best / copy);
    std::fflush(stdout);
  };
  Stream& s = bench.stream();
  constexpr std::int64_t N = 16384;
  constexpr auto bf16 = DType::bf16, fp32 = DType::fp32;
  for (const std::int64_t D : {768, 1600, 4096}) {
    const Arena::Scope scope(bench.arena());
    const auto x = bench.tensor({N, D}, bf16), r = bench.tensor({N, D}, bf16);
    const auto y = bench.zeros({N, D}, bf16), sum = bench.zeros({N, D}, bf16);
    const auto w = bench.tensor({D}, bf16), rstd = bench.zeros({N}, fp32);
    const auto stats = bench.zeros({N, 2}, fp32), dw = bench.zeros({D}, fp32),
               db = bench.zeros({D}, fp32);
    const auto each = x.bytes();
    const auto d = str(" D ", D);
    show("rmsnorm forward, with residual," + d, 4 * each, [&] {
      rmsnorm_forward(s, {y, rstd, sum, x, r, w, 1e-5f});
    });
    show("rmsnorm backward," + d, 4 * each, [&] {
      rmsnorm_backward(s, bench.arena(), {y, dw, x, r, rstd, w});
    });
    show("layernorm forward, with residual," + d, 4 * each, [&] {
      layernorm_forward(
          s, {.y = y, .stats = stats, .sum = sum, .x = x, .residual = r, .weight = w, .bias = w});
    });
    show("layernorm backward," + d, 4 * each, [&] {
      layernorm_backward(
          s, bench.arena(),
          {.dx = y, .dweight = dw, .dbias = db, .dy = x, .s = r, .stats = stats, .weight = w});
    });
  }
  {
    const Arena::Scope scope(bench.arena());
    constexpr std::int64_t F = 14336;
    const auto gate_up = bench.tensor({N, 2 * F}, bf16), hidden = bench.tensor({N, F}, bf16);
    const auto out = bench.zeros({N, 2 * F}, bf16), absmax_of = bench.zeros({1}, fp32);
    const auto squares = bench.zeros({1}, fp32);
    show("swiglu forward, F 14336", 3 * hidden.bytes(),
         [&] { swiglu_forward(s, hidden, gate_up); });
    show("swiglu backward, F 14336", 5 * hidden.bytes(),
         [&] { swiglu_backward(s, out, hidden, gate_up); });
    show("gelu forward", 2 * gate_up.bytes(), [&] { gelu_forward(s, out, gate_up); });
    show("gelu backward", 3 * gate_up.bytes(), [&] { gelu_backward(s, out, out, gate_up); });
    show("swiglu forward, with absmax", 3 * hidden.bytes(),
         [&] { swiglu_forward(s, hidden, gate_up, absmax_of); });
    show("absmax", hidden.bytes(), [&] { absmax(s, absmax_of, hidden); });
    const ConstTensor summed = hidden;
    show("sum of squares", hidden.bytes(), [&] {
      sum_of_squares(s, bench.arena(), squares, {&summed, 1});
    });
    for (const auto& [name, scaling] : kScalings) {
      const auto q = bench.fp8(scaling, {N, F}), t = bench.fp8(scaling, {F, N});
      const auto most = scaling == Scaling::tensor ? absmax_of : Tensor{};
      show(str("quantize, ", name), hidden.bytes() * 3 / 2,
           [&] { quantize(s, q, {}, hidden, most); });
      show(str("quantize and transpose, ", name), 2 * hidden.bytes(),
           [&] { quantize(s, q, t, hidden, most); });
    }
  }
  {
    const Arena::Scope scope(bench.arena());
    const auto qkv = bench.tensor({N, 48, 128}, bf16), table = bench.zeros({8192, 128}, fp32);
    const auto positions = bench.integers({N}, [](std::int64_t i) { return i % 8192; });
    rope_table(s, table, 500000.0f, std::nullopt);
    show("rope, 32 + 8 heads of 128", 2 * qkv.bytes() * 40 / 48,
         [&] { rope_forward(s, qkv, table, positions, 32, 8); });
    const auto out = bench.zeros(qkv.shape, bf16), w = bench.tensor({128}, bf16);
    const auto rstd = bench.zeros({N, 40}, fp32), dw = bench.zeros({128}, fp32);
    show("qk-norm and rope", 2 * qkv.bytes(), [&] {
      qk_norm_forward(s, {.out = out,
                          .rstd = rstd,
                          .qkv = qkv,
                          .q_weight = w,
                          .k_weight = w,
                          .heads = 32,
                          .kv_heads = 8,
                          .table = table,
                          .positions = positions});
    });
    show("qk-norm and rope backward", 3 * qkv.bytes() * 40 / 48, [&] {
      qk_norm_backward(s, bench.arena(),
                       {.dqkv = out,
                        .dq_weight = dw,
                        .dk_weight = dw,
                        .qkv = qkv,
                        .rstd = rstd,
                        .q_weight = w,
                        .k_weight = w,
                        .heads = 32,
                        .kv_heads = 8,
                        .table = table,
                        .positions = positions});
    });
  }
  for (const std::int64_t V : {50304, 128256}) {
    const Arena::Scope scope(bench.arena());
    constexpr std::int64_t n = 4096;
    const auto logits = bench.tensor({n, V}, bf16), losses = bench.zeros({n}, fp32);
    const auto targets =
        bench.integers({n}, [&](std::int64_t i) { return Bench::any_below(V, i); });
    show(str("cross-entropy gradient, V ", V), 2 * logits.bytes(), [&] {
      cross_entropy_gradient(
          s, logits, {.losses = losses, .targets = targets, .vocabulary = static_cast<int>(V)});
    });
  }
  {
    const Arena::Scope scope(bench.arena());
    constexpr std::int64_t V = 50304, D = 4096;
    const auto w = bench.tensor({V, D}, bf16), y = bench.zeros({N, D}, bf16),
               dw = bench.zeros({V, D}, fp32);
    const auto ids = bench.integers({N}, [](std::int64_t i) { return Bench::any_below(V, i); });
    show("embedding forward", 2 * y.bytes(), [&] { embedding_forward(s, y, ids, w, {}, {}); });
    show("embedding backward (rows are different)", 5 * y.bytes(),
         [&] { embedding_backward(s, bench.arena(), dw, {}, y, ids, {}); });
  }
  {
    const Arena::Scope scope(bench.arena());
    constexpr std::int64_t n = std::int64_t{1} << 28;
    const auto weight = bench.tensor({n}, bf16), master = bench.tensor({n}, fp32),
               grad = bench.tensor({n}, fp32);
    const auto m = bench.zeros({n}, fp32), v = bench.zeros({n}, fp32);
    const auto m16 = bench.zeros({n}, bf16), v16 = bench.zeros({n}, bf16);
    const auto rate = bench.zeros({1}, fp32), control = bench.zeros({5}, fp32);
    fill(s, rate, 1e-4f);
    fill(s, control, 1.0f);
    const auto step = bench.zeros({1}, DType::int32), updates = bench.zeros({1}, DType::int32);
    const AdamWScalars scalars{rate, step, updates, control};
    const AdamWRun wide{.weight = weight, .master = master, .m = m, .v = v, .grad = grad};
    AdamWRun found = wide;
    found.absmax = bench.zeros({1}, DType::fp32);
    const AdamWRun narrow{.weight = weight, .master = {}, .m = m16, .v = v16, .grad = grad};
    show("adamw, fp32 master and moments", 30 * n, [&] {
      adamw_update(s, {&wide, 1}, scalars, {});
    });
    show("adamw, fp32 master and moments, with absmax", 30 * n, [&] {
      adamw_update(s, {&found, 1}, scalars, {});
    });
    show("adamw, all bf16, stochastic rounding", 16 * n, [&] {
      adamw_update(s, {&narrow, 1}, scalars, {});
    });
  }
}

void matmul(Bench& bench) {
  std::printf("\n%-34s %18s %10s %6s %9s %9s %8s\n", "matmul, bf16", "N,I,O", "first TF/s", "best",
              "operator", "median", "of best");
  Stream& s = bench.stream();
  constexpr auto bf16 = DType::bf16;
  struct Size {
    std::int64_t N, I, O;
  };
  for (const auto& [N, I, O] :
       {Size{8192, 8192, 8192}, Size{65536, 768, 2304}, Size{65536, 768, 3072},
        Size{16384, 1600, 6400}, Size{16384, 2048, 8192}, Size{16384, 4096, 6144},
        Size{16384, 4096, 28672}, Size{16384, 14336, 4096}, Size{4096, 4096, 128256}}) {
    const Arena::Scope scope(bench.arena());
    const auto x = bench.tensor({N, I}, bf16), y = bench.tensor({N, O}, bf16),
               pre = bench.tensor({N, O}, bf16);
    const auto w = bench.tensor({O, I}, bf16, 0.02f), bias = bench.tensor({O}, bf16);
    const auto dx = bench.tensor({N, I}, bf16), dw = bench.zeros({O, I}, DType::fp32),
               db = bench.zeros({O}, DType::fp32);
    const double flops = 2.0 * static_cast<double>(N * I) * static_cast<double>(O);
    const auto show = [&](const char* what, const std::function<void()>& call) {
      const auto chosen = choose_products(s, {}, call);
      const auto& seconds = chosen.measured.back().seconds;
      const double best = *std::min_element(seconds.begin(), seconds.end());
      const auto t = bench.time(call);
      std::printf("%-34s %18s %10.0f %6.0f %9.0f %9.0f %7.1f%%\n", what,
                  str(N, ",", I, ",", O).c_str(), flops / seconds.front() / 1e12,
                  flops / best / 1e12, flops / t.best / 1e12, flops / t.median / 1e12,
                  100 * best / t.best);
      std::fflush(stdout);
    };
    Arena& a = bench.arena();
    show("forward", [&] { matmul_forward(s, a, y, x, w); });
    show("forward + bias", [&] { matmul_forward(s, a, y, x, w, {.bias = bias}); });
    show("forward + bias, GELU, auxiliary",
         [&] { matmul_forward(s, a, y, x, w, {.bias = bias, .pre_gelu = pre}); });
    show("backward, input", [&] { matmul_backward_input(s, a, dx, y, w); });
    show("backward, input, GELU gradient", [&] { matmul_backward_input(s, a, dx, y, w, x); });
    show("backward, weight", [&] { matmul_backward_weight(s, a, dw, {}, y, x); });
    show("backward, weight + bias gradient", [&] { matmul_backward_weight(s, a, dw, db, y, x); });
  }
}

void matmul_fp8(Bench& bench) {
  std::printf("\n%-44s %12s %9s %9s\n", "matmul, fp8", "N, I, O", "best TF/s", "median");
  constexpr auto bf16 = DType::bf16, fp32 = DType::fp32;
  struct Size {
    std::int64_t N, I, O;
  };
  for (const auto& [N, I, O] :
       {Size{8192, 8192, 8192}, Size{16384, 2048, 8192}, Size{16384, 4096, 6144},
        Size{16384, 4096, 28672}, Size{16384, 14336, 4096}})
    for (const bool whole : {true, false}) {
      const Arena::Scope scope(bench.arena());
      const auto filled = [&](Scaling scaling, std::int64_t R, std::int64_t C) {
        const auto m = bench.fp8(scaling, {R, C});
        const auto x = bench.tensor({R, C}, bf16), most = bench.zeros({1}, fp32);
        fill(bench.stream(), most, 1.0f);
        quantize(bench.stream(), m, {}, x, scaling == Scaling::tensor ? most : Tensor{});
        return m;
      };
      const auto fine = whole ? Scaling::tensor : Scaling::rows;
      const auto x = filled(fine, N, I), w = filled(whole ? fine : Scaling::blocks, O, I);
      const auto dy_t = filled(fine, O, N), x_t = filled(fine, I, N);
      const auto y = bench.zeros({N, O}, bf16), dw = bench.zeros({O, I}, fp32);
      const double flops = 2.0 * static_cast<double>(N * I) * static_cast<double>(O);
      const auto show = [&](const char* what, const MatmulFp8& args) {
        const auto t = bench.time([&] { matmul_fp8(bench.stream(), bench.arena(), args); });
        std::printf("%-44s %12s %9.0f %9.0f\n",
                    str(what, whole ? "" : ", scales of blocks").c_str(),
                    str(N, ",", I, ",", O).c_str(), flops / t.best / 1e12, flops / t.median / 1e12);
        std::fflush(stdout);
      };
      if (whole) show("forward, fast", {.y = y, .a = x, .b = w, .fast = true});
      show("forward", {.y = y, .a = x, .b = w});
      show("backward, weight", {.y = dw, .a = dy_t, .b = x_t, .residual = dw});
    }
}

void attention(Bench& bench) {
  std::printf("\n%-44s %9s %9s %9s %9s\n", "attention, bf16, causal, 16384 tokens", "forward",
              "median", "backward", "median");
  const auto show = [](const std::string& what, double product, const Seconds& forward,
                       const Seconds& backward) {
    std::printf("%-44s %9.0f %9.0f %9.0f %9.0f\n", what.c_str(), 2 * product / forward.best,
                2 * product / forward.median, 5 * product / backward.best,
                5 * product / backward.median);
    std::fflush(stdout);
  };
  Stream& s = bench.stream();
  constexpr auto bf16 = DType::bf16;
  constexpr std::int64_t N = 16384;
  struct Size {
    std::int64_t H, G, K;
  };
  for (const auto& [H, G, K] :
       {Size{12, 12, 64}, Size{25, 25, 64}, Size{32, 8, 128}, Size{64, 8, 128}})
    for (const std::int64_t T : {1024, 2048, 4096, 8192, 16384}) {
      const Arena::Scope scope(bench.arena());
      const auto qkv = bench.tensor({N, H + 2 * G, K}, bf16),
                 dqkv = bench.zeros({N, H + 2 * G, K}, bf16);
      const auto out = bench.zeros({N, H, K}, bf16), dout = bench.tensor({N, H, K}, bf16);
      const auto lse = bench.zeros({N / T, H, T}, DType::fp32);
      Arena& a = bench.arena();
      const double product = static_cast<double>(N * T) * static_cast<double>(H * K) / 1e12;
      const auto sizes = str("H ", H, " G ", G, " K ", K, ", T ", T);
      const auto own = bench.time([&] { attention_forward(s, a, out, lse, qkv, {}); });
      show(sizes, product, own,
           bench.time([&] { attention_backward(s, a, dqkv, dout, out, lse, qkv, {}); }));
      if (const auto why_not = prepare_cudnn_attention(s, {N / T, T, H, G, K}); !why_not.empty()) {
        std::printf("%-44s %s\n", "    cuDNN", why_not.c_str());
        continue;
      }
      const auto forward = bench.time([&] { cudnn_attention_forward(s, a, out, lse, qkv); });
      show(str("    cuDNN ", cudnn_version()), product, forward,
           bench.time([&] { cudnn_attention_backward(s, a, dqkv, dout, out, lse, qkv); }));
    }
}

ModelConfig sized(Family family, std::int64_t layers, std::int64_t width, std::int64_t heads,
                  std::int64_t kv_heads, std::int64_t mlp, std::int64_t vocabulary) {
  ModelConfig m = family_defaults(family);
  m.layers = layers;
  m.width = width;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.head_size = width / heads;
  m.mlp_width = mlp;
  m.vocabulary = vocabulary;
  m.max_positions = 8192;
  return m;
}

ModelConfig with_tied_head(ModelConfig m) {
  m.tied_head = true;
  return m;
}

struct StepCase {
  const char* name;
  ModelConfig model;
  std::int64_t length, sequences, micro_batches;
  bool bf16_state;  // weights by stochastic rounding, bf16 moments
  Fp8Products fp8 = Fp8Products::off;
  bool cuda_graphs = false, cudnn_attention = false, offload_optimizer = false;
};

TrainingConfig config_of(const StepCase& c) {
  TrainingConfig config{.model = c.model,
                        .compute = DType::bf16,
                        .stochastic_rounding = c.bf16_state,
                        .fp8 = c.fp8,
                        .moments = c.bf16_state ? DType::bf16 : DType::fp32,
                        .adamw = {},
                        .sequence_length = c.length,
                        .micro_batch_sequences = c.sequences,
                        .global_batch_sequences = c.sequences * c.micro_batches,
                        .cuda_graphs = c.cuda_graphs};
  config.cudnn_attention = c.cudnn_attention;
  config.offload_optimizer = c.offload_optimizer;
  return config;
}

// What goes from the GPU's free memory, stage by stage.
class FreeMemory {
 public:
  FreeMemory() : begin_(gpu::free_bytes()), last_(begin_) {}
  void stage(const char* name) {
    const auto now = gpu::free_bytes();
    text_ += str(text_.empty() ? "" : ", ", name, " ", mib(last_ - now));
    last_ = now;
  }
  void print(std::int64_t measured) const {
    const auto taken = begin_ - last_;
    std::printf("    MiB: %s; in all %s, measured %s, %+.2f%%\n", text_.c_str(), mib(taken).c_str(),
                mib(measured).c_str(),
                100 * (static_cast<double>(taken) / static_cast<double>(measured) - 1));
  }
  static std::string mib(std::int64_t bytes) { return str(bytes / (1 << 20)); }

 private:
  std::int64_t begin_, last_;
  std::string text_;
};

struct StepTimes {
  std::vector<double> seconds, host;     // of the steps that are not timed by phase, sorted
  double timed_seconds = 0;              // of the one that is
  std::array<double, kPhases> phases{};  // of that
};

// Steps that come one behind the other: each is enqueued before the numbers of the one before are
// read. The first warms up, the second is captured where there are graphs, the last is timed by
// phase.
StepTimes time_steps(Training& training, Stream& stream, const Batch& batch,
                     std::int64_t micro_batches) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kLast = Training::kTimedSteps, kFirst = kLast - 9;
  std::vector<Event> ends;
  std::vector<double> host;
  for (std::int64_t i = kFirst; i <= kLast; ++i) {
    const auto begin = Clock::now();
    training.begin_step(i, 1e-4);
    for (std::int64_t m = 0; m < micro_batches; ++m)
      training.micro_step(batch);
    training.finish_step();
    host.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    ends.push_back(stream.record_timed());
    if (i > kFirst) training.numbers(i - 1);
    if (i > kFirst) training.trace().take();  // of the step before
  }
  training.numbers(kLast);
  ends.back().synchronize();
  StepTimes t;
  t.phases = training.trace().take();
  const auto count = ends.size();
  t.timed_seconds = ends[count - 1].seconds_since(ends[count - 2]);
  for (std::size_t i = 3; i < count - 1; ++i) {
    t.seconds.push_back(ends[i].seconds_since(ends[i - 1]));
    t.host.push_back(host[i]);
  }
  std::sort(t.seconds.begin(), t.seconds.end());
  std::sort(t.host.begin(), t.host.end());
  return t;
}

void print_times(const StepCase& c, const TrainingConfig& config, const StepTimes& t,
                 std::int64_t device_bytes) {
  const auto tokens = static_cast<double>(config.step_tokens());
  const auto flops = flops_per_token(c.model, c.length);
  const auto gpu = gpu::properties(0).name;
  const double fp8 = c.fp8 == Fp8Products::off ? 0 : flops.layer_products;
  const auto mfu = [&](double of) {
    return (of - fp8) / gpu_peak_flops(gpu, DType::bf16) +
           (fp8 > 0 ? fp8 / gpu_peak_flops(gpu, DType::fp8_e4m3) : 0);
  };
  const double middle = t.seconds[t.seconds.size() / 2];
  const double best = tokens / t.seconds.front(), median = tokens / middle;
  std::printf("%-28s %9.0f %9.0f %6.1f%% %6.1f%% %8.1f GiB |", c.name, best, median,
              100 * median * mfu(flops.causal), 100 * median * mfu(flops.square),
              static_cast<double>(device_bytes) / kGiB);
  double traced = 0;
  for (int p = 0; p < kPhases; ++p) {
    const double seconds = t.phases[static_cast<std::size_t>(p)];
    traced += seconds;
    if (seconds > 0)
      std::printf(" %s %.1f%%", name(static_cast<Phase>(p)), 100 * seconds / t.timed_seconds);
  }
  std::printf(", idle %.1f%%, %.1f%%, host %.2f\n", 100 * (1 - traced / t.timed_seconds),
              100 * (1 - traced / middle), t.host[t.host.size() / 2] / middle);
}

// False where there is no such attention, or not enough memory.
bool step(const StepCase& c) {
  const auto config = config_of(c);
  const auto bytes = measure_training(config, kGpu, 1);
  Stream stream(kGpu, "bench");
  FreeMemory free;
  if (c.cudnn_attention) {
    const auto& m = c.model;
    const auto why_not =
        prepare_cudnn_attention(stream, {c.sequences, c.length, m.heads, m.kv_heads, m.head_size});
    if (!why_not.empty()) {
      std::printf("%-28s %s\n", c.name, why_not.c_str());
      return false;
    }
    free.stage("cuDNN");
  }
  if (const auto host = available_memory_bytes(Device{}); bytes.pinned > host) {
    std::printf("%-28s needs %.1f GiB of the host's memory, %.1f are free\n", c.name,
                static_cast<double>(bytes.pinned) / kGiB, static_cast<double>(host) / kGiB);
    return false;
  }
  if (bytes.device > gpu::free_bytes()) {
    std::printf("%-28s needs %.1f GiB, %.1f are free\n", c.name,
                static_cast<double>(bytes.device) / kGiB,
                static_cast<double>(gpu::free_bytes()) / kGiB);
    return false;
  }
  Arenas arenas(kGpu, bytes);
  free.stage("arena");
  Training training(config, stream, arenas);
  training.choose_products({});
  training.initialize();
  stream.synchronize();
  free.stage("cuBLASLt and kernels");
  Arena pinned(kGpu, Arena::Memory::pinned_host, 64 << 20);
  const auto host = [&](const std::function<std::int64_t(std::int64_t)>& value) {
    const Tensor t = pinned.allocate("batch", DType::int32, {c.sequences, c.length});
    for (std::int64_t i = 0; i < t.elements(); ++i)
      t.as<std::int32_t>()[i] = static_cast<std::int32_t>(value(i));
    return t;
  };
  const auto V = c.model.vocabulary;
  const Batch batch{.inputs = host([&](std::int64_t i) { return Bench::any_below(V, i); }),
                    .targets = host([&](std::int64_t i) { return Bench::any_below(V, i + 1); }),
                    .positions = host([&](std::int64_t i) { return i % c.length; }),
                    .document_start = {}};
  const auto times = time_steps(training, stream, batch, c.micro_batches);
  free.stage(c.cuda_graphs ? "steps and their graphs" : "steps");
  print_times(c, config, times, bytes.device);
  LOCKSTEP_CHECK(arenas.peak().device == bytes.device, "the arena's peak is ", arenas.peak().device,
                 ", measured ", bytes.device);
  free.print(bytes.device);
  std::fflush(stdout);
  return true;
}

struct NamedSteps {
  std::string_view part;
  std::vector<StepCase> cases;
};
const std::vector<NamedSteps>& models() {
  static const std::vector<NamedSteps> all{
      {"gpt2_124m",
       {{"GPT-2 124M, 4 x 1k", sized(Family::gpt2, 12, 768, 12, 12, 3072, 50257), 1024, 4, 4,
         false},
        {"GPT-2 124M, 64 x 1k", sized(Family::gpt2, 12, 768, 12, 12, 3072, 50257), 1024, 64, 4,
         false}}},
      {"gpt2_1.5b",
       {{"GPT-2 1.5B, 16 x 1k", sized(Family::gpt2, 48, 1600, 25, 25, 6400, 50257), 1024, 16, 4,
         false}}},
      {"llama_1b",
       {{"Llama 1B, 8 x 2k", sized(Family::llama3, 16, 2048, 32, 8, 8192, 128256), 2048, 8, 4,
         false}}},
      {"llama_8b",
       {{"Llama 8B, 2 x 4k, bf16 state", sized(Family::llama3, 32, 4096, 32, 8, 14336, 128256),
         4096, 2, 4, true}}},
      {"qwen2_1.5b",
       {{"Qwen 2.5 1.5B, 16 x 1k, bf16",
         with_tied_head(sized(Family::qwen2, 28, 1536, 12, 2, 8960, 151936)), 1024, 16, 4, true}}},
      {"qwen2_7b",
       {{"Qwen 2.5 7B, 8 x 1k, bf16", sized(Family::qwen2, 28, 3584, 28, 4, 18944, 151936), 1024, 8,
         4, true}}}};
  return all;
}

void steps(const std::vector<StepCase>& cases) {
  const auto p = gpu::properties(0);
  std::printf("\nbefore: %s MiB are taken, by the context and by others\n",
              FreeMemory::mib(p.memory_bytes - gpu::free_bytes()).c_str());
  std::printf("%-28s %9s %9s %7s %7s %12s\n", "step, bf16", "tokens/s", "median", "MFU", "square",
              "memory");
  for (StepCase c : cases) {
    step(c);
    c.name = "    attention by cuDNN";
    c.cudnn_attention = true;
    c.cudnn_attention = step(c);
    c.name = "      and CUDA graphs";
    c.cuda_graphs = true;
    step(c);
    c.cuda_graphs = false;
    if (c.bf16_state) {
      c.bf16_state = false;
      c.offload_optimizer = true;
      c.name = "      fp32 state on the host";
      step(c);
      c.bf16_state = true;
      c.offload_optimizer = false;
    }
    if (c.model.width < 1600) continue;
    c.name = "      and fp8";
    c.fp8 = Fp8Products::tensor;
    step(c);
    if (c.model.width % 128 != 0) continue;
    c.name = "      and fp8, blocks";
    c.fp8 = Fp8Products::block;
    step(c);
  }
}

int run(std::vector<std::string_view> parts) {
  if (const auto gpus = gpu::devices(); gpus.count == 0) {
    std::printf("skipped: no GPU can be used: %s\n", gpus.why_not.c_str());
    return 77;
  }
  if (parts.empty()) {
    parts = {"memory", "matmul", "fp8", "attention"};
    for (const auto& model : models())
      parts.push_back(model.part);
  }
  const auto p = gpu::properties(0);
  std::printf("%s, compute capability %d.%d, %d multiprocessors, %.1f GiB\n", p.name.c_str(),
              p.major, p.minor, p.multiprocessors, static_cast<double>(p.memory_bytes) / kGiB);
  for (const auto part : parts) {
    const auto model = std::find_if(models().begin(), models().end(),
                                    [&](const NamedSteps& m) { return m.part == part; });
    if (model != models().end()) {
      steps(model->cases);
      continue;
    }
    Bench bench;
    if (part == "memory")
      memory(bench);
    else if (part == "copy")
      copy_rate(bench);
    else if (part == "matmul")
      matmul(bench);
    else if (part == "fp8")
      matmul_fp8(bench);
    else if (part == "attention")
      attention(bench);
    else
      LOCKSTEP_FAIL("no part ", part, "; the head of gpu_bench.cpp names them");
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    return lockstep::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}

// Operators alone: parts copy, memory, matmul, fp8 and attention.
#include <cstdio>
#include <string>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/attention_cudnn.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/matmul_algorithms.h"
#include "kernels/matmul_fp8.h"
#include "kernels/pieces.h"
#include "kernels/qk_norm.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "tests/bench/gpu/bench.h"

namespace lockstep::bench {
namespace {

struct MatrixSizes {
  std::int64_t N, I, O;
};

constexpr std::pair<const char*, Scaling> kScalings[] = {
    {"one scale", Scaling::tensor}, {"of rows", Scaling::rows}, {"of blocks", Scaling::blocks}};

// Goals: the share of the copy that streaming kernels reach, that of the best algorithm's speed
// that a product does; TFLOP/s of our own attention with heads of 128 at 8k on an H200.
constexpr double kOfCopy = 0.86, kOfBest = 0.98;
constexpr double kForward = 300, kBothWays = 230;

}  // namespace

double copy_rate(Bench& bench) {
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
  Goals goals;
  const double copy = copy_rate(bench);
  std::printf("\n%-44s %9s %9s %9s %8s\n", "bf16, 16384 tokens", "MB", "best GB/s", "median",
              "of copy");
  const auto show = [&](const std::string& what, std::int64_t bytes,
                        const std::function<void()>& call) {
    const auto t = bench.time(call);
    const auto b = static_cast<double>(bytes);
    const double share = b / t.best / copy;
    std::printf("%-44s %9.1f %9.0f %9.0f %7.1f%%%s\n", what.c_str(), b / 1e6, b / t.best / 1e9,
                b / t.median / 1e9, 100 * share, goals.mark(share >= kOfCopy));
    std::fflush(stdout);
  };
  Stream& s = bench.stream();
  const std::int64_t N = 16384;
  const auto bf16 = DType::bf16, fp32 = DType::fp32;
  for (const std::int64_t D : {768, 1600, 4096}) {
    const Arena::Scope scope(bench.arena());
    const auto x = bench.tensor({N, D}, bf16), r = bench.tensor({N, D}, bf16);
    const auto y = bench.zeros({N, D}, bf16), sum = bench.zeros({N, D}, bf16);
    const auto w = bench.tensor({D}, bf16), rstd = bench.zeros({N}, fp32);
    const auto stats = bench.zeros({N, 2}, fp32), dw = bench.zeros({D}, fp32),
               db = bench.zeros({D}, fp32);
    const auto each = x.bytes();
    const auto most = bench.zeros({1}, fp32);
    for (const auto& absmax : {Tensor{}, most}) {
      const auto name = str(absmax ? ", absmax" : "", ", D ", D);
      show("rmsnorm forward, residual" + name, 4 * each, [&] {
        rmsnorm_forward(s, {y, rstd, sum, x, r, w, 1e-5f, absmax});
      });
      show("rmsnorm backward" + name, 4 * each, [&] {
        rmsnorm_backward(s, bench.arena(), {y, dw, x, r, rstd, w, absmax});
      });
      show("layernorm forward, residual" + name, 4 * each, [&] {
        layernorm_forward(s, {.y = y,
                              .stats = stats,
                              .sum = sum,
                              .x = x,
                              .residual = r,
                              .weight = w,
                              .bias = w,
                              .absmax = absmax});
      });
      show("layernorm backward" + name, 4 * each, [&] {
        layernorm_backward(s, bench.arena(),
                           {.dx = y,
                            .dweight = dw,
                            .dbias = db,
                            .dy = x,
                            .s = r,
                            .stats = stats,
                            .weight = w,
                            .absmax = absmax});
      });
    }
  }
  {
    const Arena::Scope scope(bench.arena());
    const std::int64_t F = 14336;
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
    const auto column_sums = bench.zeros({F}, fp32);
    show("sum of rows", hidden.bytes(), [&] { sum_rows(s, bench.arena(), column_sums, hidden); });
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
    const std::int64_t n = std::int64_t{1} << 28, D = 4096;
    const auto x = bench.tensor({n}, bf16), y = bench.zeros({n}, bf16);
    show("pack pieces", 2 * x.bytes(), [&] {
      pack_pieces(s, y.view({8, 4, n / 32}), x.view({4, 8, n / 32}), 0);
    });
    const auto bias = bench.tensor({D}, bf16), most = bench.zeros({1}, fp32);
    for (const std::int64_t P : {2, 4, 8, 64}) {
      const auto out = y.rows(0, n / P);
      show(str("sum of ", P, " pieces"), x.bytes() + out.bytes(), [&] {
        sum_pieces(s, {.out = out, .pieces = x.view({P, n / P})});
      });
      show(str("sum of ", P, " pieces, bias, residual, absmax"), x.bytes() + 2 * out.bytes(), [&] {
        sum_pieces(s, {.out = out,
                       .pieces = x.view({P, n / P}),
                       .bias = bias,
                       .residual = out,
                       .absmax = most});
      });
    }
  }
  {
    const Arena::Scope scope(bench.arena());
    const auto qkv = bench.tensor({N, 48, 128}, bf16), table = bench.zeros({8192, 128}, fp32);
    const auto positions = bench.integers({N}, [](std::int64_t i) { return i % 8192; });
    rope_table(s, table, 500000.0f, std::nullopt);
    show("rope, 32 + 8 heads of 128", 2 * qkv.bytes() * 40 / 48,
         [&] { rope_forward(s, qkv, table, positions, 32, 8); });
    show("rope backward", 2 * qkv.bytes() * 40 / 48,
         [&] { rope_backward(s, qkv, table, positions, 32, 8); });
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
    const std::int64_t n = 4096;
    const auto logits = bench.tensor({n, V}, bf16), losses = bench.zeros({n}, fp32);
    const auto parts = bench.zeros({1, n, 3}, fp32);
    const auto targets =
        bench.integers({n}, [&](std::int64_t i) { return Bench::any_below(V, i); });
    const CrossEntropy args{
        .losses = losses, .targets = targets, .vocabulary = static_cast<int>(V)};
    show(str("cross-entropy loss, V ", V), logits.bytes(),
         [&] { cross_entropy_loss(s, logits, args); });
    show(str("cross-entropy parts, V ", V), logits.bytes(), [&] {
      cross_entropy_parts(s, parts.view({n, 3}), logits, args);
    });
    auto of_parts = args;
    of_parts.parts = parts;
    show(str("cross-entropy gradient of parts, V ", V), 2 * logits.bytes(),
         [&] { cross_entropy_gradient(s, logits, of_parts); });
    show(str("cross-entropy gradient, V ", V), 2 * logits.bytes(),
         [&] { cross_entropy_gradient(s, logits, args); });
  }
  {
    const Arena::Scope scope(bench.arena());
    const std::int64_t V = 50304, D = 4096;
    const auto w = bench.tensor({V, D}, bf16), y = bench.zeros({N, D}, bf16),
               dw = bench.zeros({V, D}, fp32);
    const auto ids = bench.integers({N}, [](std::int64_t i) { return Bench::any_below(V, i); });
    show("embedding forward", 2 * y.bytes(), [&] { embedding_forward(s, {y, ids, w}); });
    show("embedding backward (rows are different)", 5 * y.bytes(),
         [&] { embedding_backward(s, bench.arena(), {.dweight = dw, .dy = y, .ids = ids}); });
    const EmbeddingPart eighth{.first_id = V / 8, .table_rows = V};
    show("embedding forward, an eighth of the rows", y.bytes() * 9 / 8, [&] {
      embedding_forward(s, {.y = y, .ids = ids, .weight = w.rows(0, V / 8), .part = eighth});
    });
    show("embedding backward, an eighth of the rows", 5 * y.bytes() / 8, [&] {
      embedding_backward(s, bench.arena(),
                         {.dweight = dw.rows(0, V / 8), .dy = y, .ids = ids, .part = eighth});
    });
  }
  {
    const Arena::Scope scope(bench.arena());
    const std::int64_t n = std::int64_t{1} << 28;
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
    show("convert, fp32 to bf16", 6 * n, [&] { convert(s, weight, grad); });
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
  {  // one new token behind 4095 of each of 64 sequences
    const Arena::Scope scope(bench.arena());
    const std::int64_t B = 64, C = 4096, H = 32, G = 8, K = 128;
    const KvCache cache{bench.tensor({B, C, G, K}, bf16), bench.tensor({B, C, G, K}, bf16)};
    const auto qkv = bench.tensor({B, H + 2 * G, K}, bf16), out = bench.zeros({B, H, K}, bf16);
    const auto positions = bench.integers({B, 1}, [](std::int64_t) { return C - 1; });
    show("decode attention, 64 sequences of 4096", 2 * cache.keys.bytes(),
         [&] { attention_cached(s, bench.arena(), out, cache, qkv, positions); });
  }
  goals.print();
}

namespace {

// A table of products, each chosen as a run does.
class Products {
 public:
  Products(Bench& bench, const char* title) : bench_(bench) {
    std::printf("\n%-34s %18s %10s %6s %9s %9s %8s\n", title, "N,I,O", "first TF/s", "best",
                "operator", "median", "of best");
  }
  ~Products() { goals_.print(); }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  void show(const std::string& what, const MatrixSizes& sizes, const std::function<void()>& call) {
    const auto& [N, I, O] = sizes;
    const double flops = 2.0 * static_cast<double>(N * I) * static_cast<double>(O);
    const auto chosen = choose_matmul_algorithms(bench_.stream(), {}, call);
    const auto& seconds = chosen.measured.back().seconds;
    const double best = *std::min_element(seconds.begin(), seconds.end());
    const auto t = bench_.time(call);
    const auto& algorithms = chosen.choices.algorithms;
    const bool is_unfused = std::any_of(algorithms.begin(), algorithms.end(),
                                        [](const auto& a) { return a.second == "unfused"; });
    std::printf("%-34s %18s %10.0f %6.0f %9.0f %9.0f %7.1f%%%s%s\n", what.c_str(),
                str(N, ",", I, ",", O).c_str(), flops / seconds.front() / 1e12, flops / best / 1e12,
                flops / t.best / 1e12, flops / t.median / 1e12, 100 * best / t.best,
                is_unfused ? "  unfused" : "", goals_.mark(best >= kOfBest * t.best));
    std::fflush(stdout);
  }

 private:
  Bench& bench_;
  Goals goals_;
};

}  // namespace

void matmul(Bench& bench) {
  Products products(bench, "matmul, bf16");
  Stream& s = bench.stream();
  const auto bf16 = DType::bf16;
  for (const auto& sizes :
       {MatrixSizes{8192, 8192, 8192}, MatrixSizes{65536, 768, 2304}, MatrixSizes{65536, 768, 3072},
        MatrixSizes{16384, 1600, 6400}, MatrixSizes{16384, 2048, 8192},
        MatrixSizes{16384, 4096, 6144}, MatrixSizes{16384, 4096, 28672},
        MatrixSizes{16384, 14336, 4096}, MatrixSizes{4096, 4096, 128256}}) {
    const auto [N, I, O] = sizes;
    const Arena::Scope scope(bench.arena());
    const auto x = bench.tensor({N, I}, bf16), y = bench.tensor({N, O}, bf16),
               pre = bench.tensor({N, O}, bf16);
    const auto w = bench.tensor({O, I}, bf16, 0.02f), bias = bench.tensor({O}, bf16);
    const auto dx = bench.tensor({N, I}, bf16), dw = bench.zeros({O, I}, DType::fp32),
               db = bench.zeros({O}, DType::fp32);
    const auto show = [&](const char* what, const std::function<void()>& call) {
      products.show(what, sizes, call);
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
  Products products(bench, "matmul, fp8");
  const auto bf16 = DType::bf16, fp32 = DType::fp32;
  for (const auto& sizes : {MatrixSizes{8192, 8192, 8192}, MatrixSizes{16384, 2048, 8192},
                            MatrixSizes{16384, 4096, 6144}, MatrixSizes{16384, 4096, 28672},
                            MatrixSizes{16384, 14336, 4096}})
    for (const bool whole : {true, false}) {
      const auto [N, I, O] = sizes;
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
      const auto show = [&](const char* what, const MatmulFp8& args) {
        products.show(str(what, whole ? "" : ", scales of blocks"), sizes,
                      [&] { matmul_fp8(bench.stream(), bench.arena(), args); });
      };
      if (whole) show("forward, fast", {.y = y, .a = x, .b = w, .fast = true});
      show("forward", {.y = y, .a = x, .b = w});
      show("backward, weight", {.y = dw, .a = dy_t, .b = x_t, .residual = dw});
    }
}

void attention(Bench& bench) {
  Goals goals;
  std::printf("\n%-44s %9s %9s %9s %9s %9s\n", "attention, bf16, causal, 16384 tokens", "forward",
              "median", "backward", "median", "both");
  // `product` is N T H K / 1e12.
  const auto show = [](const std::string& what, double product, const Seconds& forward,
                       const Seconds& backward, const char* mark) {
    std::printf("%-44s %9.0f %9.0f %9.0f %9.0f %9.0f%s\n", what.c_str(), 2 * product / forward.best,
                2 * product / forward.median, 5 * product / backward.best,
                5 * product / backward.median, 7 * product / (forward.best + backward.best), mark);
    std::fflush(stdout);
  };
  Stream& s = bench.stream();
  const auto bf16 = DType::bf16;
  const std::int64_t N = 16384;
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
      const auto own_backward =
          bench.time([&] { attention_backward(s, a, dqkv, dout, out, lse, qkv, {}); });
      const bool has_goal = K == 128 && T == 8192;
      show(sizes, product, own, own_backward,
           has_goal ? goals.mark(2 * product / own.best >= kForward &&
                                 7 * product / (own.best + own_backward.best) >= kBothWays)
                    : "");
      if (const auto why_not = prepare_cudnn_attention(s, {N / T, T, H, G, K}); !why_not.empty()) {
        std::printf("%-44s %s\n", "    cuDNN", why_not.c_str());
        continue;
      }
      const auto forward = bench.time([&] { cudnn_attention_forward(s, a, out, lse, qkv); });
      show(str("    cuDNN ", cudnn_version()), product, forward,
           bench.time([&] { cudnn_attention_backward(s, a, dqkv, dout, out, lse, qkv); }), "");
    }
  goals.print();
}

}  // namespace lockstep::bench

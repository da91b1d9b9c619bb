// Operators that move memory, beside a copy and a triad of the same size measured in the same
// rounds:
//
//   cmake --preset cpu -DLOCKSTEP_BENCHMARKS=ON && cmake --build --preset cpu --target memory_bench
//   build/cpu/bench/memory_bench [--threads 2] [--rounds 9] [--size step|memory] [--only NAME]
//                                [--clock wall|processor]
//
// step: the tensors of GPT-2 124M with 4 x 256 tokens, which mostly stay in the caches. memory: 16
// times the tokens, and 64M parameters, which do not. Each round measures the triad (a = b + s c on
// arrays of the operator's traffic), then the operator. Columns: traffic of one call (each tensor
// read or written counted once), best and median GB/s, and both in percent of the triad's. What is
// bound by arithmetic (exponentials in the cache, random numbers) shows as a low percentage. On a
// machine that does other work too, --clock processor --threads 1 counts only the time of this one.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cpu.h"
#include "core/philox.h"
#include "core/thread_pool.h"
#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/pieces.h"
#include "kernels/qk_norm.h"
#include "kernels/quantize.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace lockstep::bench {
namespace {

struct Options {
  int threads = processors_allowed(), rounds = 9;
  bool memory = false, processor_time = false;
  std::string_view only;
};

struct Case {
  std::string name;
  std::int64_t bytes;
  std::function<void()> run;
};

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void triad(float* a, const float* b, const float* c, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    a[i] = b[i] + 3.0f * c[i];
}

double now(bool processor_time) {
  timespec t{};
  clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double best(const std::vector<double>& v) {
  return *std::max_element(v.begin(), v.end());
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {}

  void run() {
    std::printf("%s, %s, %d threads, %d rounds\n", cpu_name().c_str(), name(cpu_level()),
                options_.threads, options_.rounds);
    std::printf("%-34s %9s  %13s  %15s\n", "", "MB", "GB/s best/med", "% triad best/med");
    for (const auto type : {DType::fp32, DType::bf16}) {
      activations(type);
      heads(type);
      loss(type);
      optimizer(type);
      rest(type);
    }
  }

 private:
  double seconds_of(const std::function<void()>& work, int calls) const {
    const double begin = now(options_.processor_time);
    for (int i = 0; i < calls; ++i)
      work();
    return now(options_.processor_time) - begin;
  }
  // GB/s of enough calls for 10 ms.
  double rate_of(std::int64_t bytes, const std::function<void()>& work) const {
    const int calls = std::max(1, static_cast<int>(0.01 / seconds_of(work, 1)));
    return static_cast<double>(bytes) * calls / seconds_of(work, calls) * 1e-9;
  }

  // Runs one case on tensors that `make` allocates; bytes: the traffic.
  void measure(const std::string& what, DType type, const std::function<Case()>& make) {
    if (what.find(options_.only) == std::string::npos) return;
    const Arena::Scope scope(arena_);
    const auto c = make();
    const auto n = c.bytes / 12;
    const auto a = random({n}, DType::fp32), b = random({n}, DType::fp32),
               d = random({n}, DType::fp32);
    const auto stream_triad = [&] {
      stream_.parallel_ranges(n, 4096, [&](std::int64_t begin, std::int64_t end) {
        triad(a.as<float>() + begin, b.as<float>() + begin, d.as<float>() + begin, end - begin);
      });
    };
    std::vector<double> triads, rates;
    c.run();
    for (int round = 0; round < options_.rounds; ++round) {
      triads.push_back(rate_of(12 * n, stream_triad));
      rates.push_back(rate_of(c.bytes, c.run));
    }
    std::printf("%-34s %9.1f  %6.1f %6.1f  %7.0f %7.0f\n", (what + " " + name(type)).c_str(),
                static_cast<double>(c.bytes) * 1e-6, best(rates), median(rates),
                100 * best(rates) / best(triads), 100 * median(rates) / median(triads));
  }

  Tensor random(const Shape& shape, DType type) {
    const auto t = arena_.allocate("bench", type, shape);
    random_normal(stream_, t, {.purpose = ++draws_});
    return t;
  }
  Tensor integers(std::int64_t n, std::int64_t below) {
    const auto t = arena_.allocate("ids", DType::int32, {n});
    for (std::int64_t i = 0; i < n; ++i)
      t.as<std::int32_t>()[i] = static_cast<std::int32_t>(
          philox(3, 3, static_cast<std::uint64_t>(i))[0] % static_cast<std::uint64_t>(below));
    return t;
  }

  void activations(DType type);
  void heads(DType type);
  void loss(DType type);
  void optimizer(DType type);
  void rest(DType type);

  Options options_;
  Stream stream_{Device{}, "bench", Stream::Mode::immediate, options_.threads};
  Arena arena_{Device{}, Arena::Memory::host, std::int64_t{8} << 30};
  std::uint64_t draws_ = 0;
  const std::int64_t tokens_ = options_.memory ? 16384 : 1024;
  static constexpr std::int64_t kWidth = 768, kMlp = 3072, kVocabulary = 50304;
};

void Bench::activations(DType type) {
  const Shape shape{tokens_, kWidth}, mlp{tokens_, kMlp}, twice{tokens_, 2 * kMlp};
  measure("rmsnorm_forward with residual", type, [&]() -> Case {
    const auto x = random(shape, type), y = random(shape, type), r = random(shape, type);
    const auto rstd = random({tokens_}, DType::fp32), w = random({kWidth}, type);
    return {"", 4 * x.bytes(), [=, this] {
              rmsnorm_forward(stream_, {y, rstd, x, x, r, w, 1e-5f});
            }};
  });
  measure("rmsnorm_backward", type, [&]() -> Case {
    const auto x = random(shape, type), dx = random(shape, type), dy = random(shape, type);
    const auto rstd = random({tokens_}, DType::fp32), w = random({kWidth}, type);
    const auto dw = random({kWidth}, DType::fp32);
    return {"", 4 * x.bytes(), [=, this] {
              rmsnorm_backward(stream_, arena_, {dx, dw, dy, x, rstd, w});
            }};
  });
  measure("layernorm_forward with residual", type, [&]() -> Case {
    const auto x = random(shape, type), y = random(shape, type), r = random(shape, type);
    const auto stats = random({tokens_, 2}, DType::fp32), w = random({kWidth}, type);
    return {"", 4 * x.bytes(), [=, this] {
              layernorm_forward(stream_, {y, stats, x, x, r, w, w});
            }};
  });
  measure("layernorm_backward", type, [&]() -> Case {
    const auto x = random(shape, type), dx = random(shape, type), dy = random(shape, type);
    const auto stats = random({tokens_, 2}, DType::fp32), w = random({kWidth}, type);
    const auto dw = random({kWidth}, DType::fp32), db = random({kWidth}, DType::fp32);
    return {"", 4 * x.bytes(), [=, this] {
              layernorm_backward(stream_, arena_, {dx, dw, db, dy, x, stats, w});
            }};
  });
  measure("gelu_forward", type, [&]() -> Case {
    const auto x = random(mlp, type), y = random(mlp, type);
    return {"", 2 * x.bytes(), [=, this] { gelu_forward(stream_, y, x); }};
  });
  measure("gelu_backward", type, [&]() -> Case {
    const auto x = random(mlp, type), dy = random(mlp, type);
    return {"", 3 * x.bytes(), [=, this] { gelu_backward(stream_, dy, dy, x); }};
  });
  measure("swiglu_forward", type, [&]() -> Case {
    const auto x = random(twice, type), y = random(mlp, type);
    return {"", x.bytes() + y.bytes(), [=, this] { swiglu_forward(stream_, y, x); }};
  });
  measure("swiglu_backward", type, [&]() -> Case {
    const auto x = random(twice, type), y = random(mlp, type), dx = random(twice, type);
    return {"", 2 * x.bytes() + y.bytes(), [=, this] { swiglu_backward(stream_, dx, y, x); }};
  });
}

// 16 query heads, 8 key heads and 8 value heads.
void Bench::heads(DType type) {
  constexpr std::int64_t kSize = 64, kPositions = 256;
  constexpr int kQueries = 16, kKeys = 8, kTurned = kQueries + kKeys, kAll = kTurned + kKeys;
  struct Made {
    Tensor qkv, out, weight, rstd, dweight, table, positions;
  };
  const auto make = [&]() -> Made {
    const auto table = random({kPositions, kSize}, DType::fp32);
    rope_table(stream_, table, 10000.0f, {});
    return {random({tokens_, kAll, kSize}, type),
            random({tokens_, kAll, kSize}, type),
            random({kSize}, type),
            random({tokens_, kTurned}, DType::fp32),
            random({kSize}, DType::fp32),
            table,
            integers(tokens_, kPositions)};
  };
  measure("rope_forward", type, [&]() -> Case {
    const auto m = make();
    return {"", 2 * m.qkv.bytes() * kTurned / kAll,
            [=, this] { rope_forward(stream_, m.qkv, m.table, m.positions, kQueries, kKeys); }};
  });
  measure("qk_norm_forward with rope", type, [&]() -> Case {
    const auto m = make();
    return {"", 2 * m.qkv.bytes(), [=, this] {
              qk_norm_forward(stream_, {m.out, m.rstd, m.qkv, m.weight, m.weight, kQueries, kKeys,
                                        1e-6f, m.table, m.positions});
            }};
  });
  measure("qk_norm_backward with rope", type, [&]() -> Case {
    const auto m = make();
    return {"", 3 * m.qkv.bytes() * kTurned / kAll, [=, this] {
              qk_norm_backward(stream_, arena_,
                               {m.out, m.dweight, m.dweight, m.qkv, m.rstd, m.weight, m.weight,
                                kQueries, kKeys, m.table, m.positions});
            }};
  });
}

void Bench::loss(DType type) {
  const auto rows = tokens_ / 8;  // the head works in chunks
  const auto call = [&](bool gradient) -> Case {
    const auto logits = random({rows, kVocabulary}, type), losses = random({rows}, DType::fp32);
    const CrossEntropy args{.losses = losses,
                            .targets = integers(rows, 50257),
                            .vocabulary = 50257,
                            .gradient_scale = 1e-3f};
    if (gradient)
      return {"", 2 * logits.bytes(), [=, this] { cross_entropy_gradient(stream_, logits, args); }};
    return {"", logits.bytes(), [=, this] { cross_entropy_loss(stream_, logits, args); }};
  };
  measure("cross_entropy_parts, then gradient", type, [&]() -> Case {
    const auto logits = random({rows, kVocabulary}, type), losses = random({rows}, DType::fp32);
    const auto parts = random({1, rows, 3}, DType::fp32);
    const CrossEntropy args{.losses = losses,
                            .targets = integers(rows, 50257),
                            .vocabulary = 50257,
                            .gradient_scale = 1e-3f,
                            .parts = parts};
    return {"", 3 * logits.bytes(), [=, this] {
              cross_entropy_parts(stream_, parts.view({rows, 3}), logits, args);
              cross_entropy_gradient(stream_, logits, args);
            }};
  });
  measure("cross_entropy_gradient", type, [&] { return call(true); });
  measure("cross_entropy_loss", type, [&] { return call(false); });
}

void Bench::optimizer(DType type) {
  const std::int64_t n = options_.memory ? std::int64_t{64} << 20 : 7 << 20;
  struct Mode {
    const char* name;
    bool master;
    DType moments;
  };
  const std::vector<Mode> modes =
      type == DType::fp32 ? std::vector<Mode>{{"adamw", false, DType::fp32}}
                          : std::vector<Mode>{{"adamw with master", true, DType::fp32},
                                              {"adamw stochastic", false, DType::fp32},
                                              {"adamw stochastic, bf16 moments", false, type}};
  for (const auto& mode : modes)
    measure(mode.name, type, [&]() -> Case {
      AdamWRun run;
      run.weight = random({n}, type);
      if (mode.master) run.master = random({n}, DType::fp32);
      run.m = random({n}, mode.moments);
      run.v = random({n}, mode.moments);
      const auto grad = random({n}, DType::fp32);
      run.grad = grad;
      const auto scalar = random({1}, DType::fp32), control = random({5}, DType::fp32);
      const AdamWScalars scalars{scalar, integers(1, 5), integers(1, 5), control};
      fill(stream_, run.v, 1);
      fill(stream_, scalar, 1e-4f);
      fill(stream_, control, 1);
      const auto state = run.weight.bytes() + run.m.bytes() + run.v.bytes();
      const auto master = mode.master ? 2 * run.master.bytes() - run.weight.bytes() : 0;
      return {"", 2 * state + master + grad.bytes(), [=, this] {
                adamw_update(stream_, {&run, 1}, scalars, {});
              }};
    });
}

void Bench::rest(DType type) {
  const std::int64_t n = options_.memory ? std::int64_t{64} << 20 : 4 << 20;
  measure("sum_of_squares", type, [&]() -> Case {
    const ConstTensor x = random({n}, type);
    const auto out = random({1}, DType::fp32);
    return {"", x.bytes(), [=, this] { sum_of_squares(stream_, arena_, out, {&x, 1}); }};
  });
  measure("fill", type, [&]() -> Case {
    const auto x = random({n}, type);
    return {"", x.bytes(), [=, this] { fill(stream_, x, 0); }};
  });
  measure("copy", type, [&]() -> Case {
    const auto x = random({n}, type), y = random({n}, type);
    return {"", 2 * x.bytes(), [=, this] { convert(stream_, y, x); }};
  });
  measure("convert to the other type", type, [&]() -> Case {
    const auto other = type == DType::fp32 ? DType::bf16 : DType::fp32;
    const auto x = random({n}, type), y = random({n}, other);
    return {"", x.bytes() + y.bytes(), [=, this] { convert(stream_, y, x); }};
  });
  measure("pack_pieces", type, [&]() -> Case {
    const auto x = random({4, 4, n / 16}, type), y = random({4, 4, n / 16}, type);
    return {"", 2 * x.bytes(), [=, this] { pack_pieces(stream_, y, x, 0); }};
  });
  measure("sum_pieces of 4 with residual", type, [&]() -> Case {
    const auto x = random({4, n / 4}, type), r = random({n / 4}, type);
    return {"", x.bytes() + 2 * r.bytes(),
            [=, this] { sum_pieces(stream_, {.out = r, .pieces = x, .residual = r}); }};
  });
  measure("random_normal", type, [&]() -> Case {
    const auto x = random({n}, type);
    return {"", x.bytes(), [=, this] { random_normal(stream_, x, {}); }};
  });
  measure("embedding_forward", type, [&]() -> Case {
    const auto weight = random({kVocabulary, kWidth}, type), y = random({tokens_, kWidth}, type);
    const auto place = random({256, kWidth}, type);
    const auto ids = integers(tokens_, kVocabulary), positions = integers(tokens_, 256);
    return {"", 3 * y.bytes(), [=, this] {
              embedding_forward(stream_, {y, ids, weight, positions, place});
            }};
  });
  measure("embedding_backward", type, [&]() -> Case {
    const auto weight = random({kVocabulary, kWidth}, DType::fp32);
    const auto dy = random({tokens_, kWidth}, type);
    const auto ids = integers(tokens_, kVocabulary);
    return {"", dy.bytes() + 8 * dy.elements(), [=, this] {
              embedding_backward(stream_, arena_, {.dweight = weight, .dy = dy, .ids = ids});
            }};
  });
  if (type != DType::bf16) return;
  for (const auto& [name, scaling] :
       {std::pair{"quantize", Scaling::tensor}, {"quantize, scales of rows", Scaling::rows}})
    measure(name, type, [&, s = scaling]() -> Case {
      const Shape shape{n / 4096, 4096}, turned{4096, n / 4096};
      const auto x = random(shape, type);
      const auto most = s == Scaling::tensor ? random({1}, DType::fp32) : Tensor{};
      const auto matrix = [&](const Shape& of) {
        return Fp8Matrix{arena_.allocate("q", DType::fp8_e4m3, of),
                         arena_.allocate("scales", DType::fp32, scales_shape(s, of)), s};
      };
      const auto q = matrix(shape), t = matrix(turned);
      return {"with transpose", x.bytes() + 2 * n, [=, this] { quantize(stream_, q, t, x, most); }};
    });
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view key = argv[i], value = argv[i + 1];
    if (key == "--threads")
      options.threads = std::atoi(argv[i + 1]);
    else if (key == "--rounds")
      options.rounds = std::atoi(argv[i + 1]);
    else if (key == "--size")
      options.memory = value == "memory";
    else if (key == "--clock")
      options.processor_time = value == "processor";
    else if (key == "--only")
      options.only = value;
    else
      LOCKSTEP_FAIL("unknown option ", key, "; the top of memory_bench.cpp lists them");
  }
  return options;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) try {
  lockstep::bench::Bench(lockstep::bench::parse(argc, argv)).run();
} catch (const lockstep::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return e.exit_code();
}

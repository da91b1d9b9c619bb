// Attention beside the measured multiply-add peak, alternated in one run:
//
//   cmake --preset cpu -DLOCKSTEP_BENCHMARKS=ON && cmake --build --preset cpu --target
//   attention_bench build/cpu/bench/attention_bench [--threads 2] [--rounds 7] [--dtype fp32|bf16]
//                                   [--set training|decode] [--processor-time]
//
// Each round measures the peak (kernels/peak.h), then forward and backward for at least 20 ms each.
// Operations are those of the causal half only: 4 K a query head and visible key forward, 10 K
// backward. Columns: Gflop/s of the best round, then best and median in percent of the best and
// median peak; "both" is forward and backward together. Decoding one token a sequence is bound by
// memory: GB/s of keys and values read. --processor-time: one thread, by the processor's time
// rather than the clock's, for a machine that is busy with other work.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

#include "core/cpu.h"
#include "core/philox.h"
#include "core/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/peak.h"

namespace lockstep::bench {
namespace {

struct Size {
  std::int64_t B, T, H, G, K;
};

// GPT-2 124M, a byte model, GPT-2 at its full length, Llama-like heads, odd head sizes, long.
const std::vector<Size> kTraining = {
    {4, 256, 12, 12, 64}, {16, 256, 6, 6, 64},  {6, 256, 4, 2, 64},  {4, 1024, 12, 12, 64},
    {1, 2048, 8, 2, 128}, {1, 2048, 16, 8, 80}, {1, 8192, 4, 1, 64}, {1, 16384, 2, 1, 128}};
// T: tokens in the cache.
const std::vector<Size> kDecode = {
    {1, 256, 12, 12, 64}, {1, 1024, 12, 12, 64}, {4, 4096, 32, 8, 128}, {1, 32768, 32, 8, 128}};

struct Options {
  int threads = processors_allowed(), rounds = 7;
  std::vector<DType> dtypes = {DType::fp32, DType::bf16};
  bool decode = false, processor_time = false;
};

double now(bool processor_time) {
  timespec t{};
  clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Rates {
  std::vector<double> values;
  void add(double value) { values.push_back(value); }
  double best() const { return *std::max_element(values.begin(), values.end()); }
  double median() const {
    auto sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

Tensor random(Arena& arena, DType dtype, const Shape& shape) {
  const Tensor t = arena.allocate("random", dtype, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const float v = 2 * uniform_open(static_cast<std::uint32_t>(i) * 2654435761u) - 1;
    if (dtype == DType::fp32)
      t.as<float>()[i] = v;
    else
      t.as<BFloat16>()[i] = to_bf16(v);
  }
  return t;
}

Tensor integers(Arena& arena, const Shape& shape, std::int32_t value) {
  const Tensor t = arena.allocate("integers", DType::int32, shape);
  std::fill_n(t.as<std::int32_t>(), t.elements(), value);
  return t;
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        stream_(Device{}, "bench", Stream::Mode::immediate, options.threads),
        arena_(Device{}, Arena::Memory::host, std::int64_t{2} << 30),
        scratch_(Device{}, Arena::Memory::host, std::int64_t{1} << 29) {}

  void run(DType dtype) {
    std::printf("%s, %d threads, %s\n", name(dtype), options_.threads, name(cpu_level()));
    if (options_.decode)
      std::printf("%-24s %21s\n", "B,T,H,G,K", "GB/s best / median");
    else
      std::printf("%-24s %21s %21s %21s %10s\n", "B,T,H,G,K", "forward", "backward", "both",
                  "peak");
    for (const auto& size : options_.decode ? kDecode : kTraining) {
      const Arena::Scope scope(arena_);
      std::printf("%2ld,%6ld,%3ld,%3ld,%4ld  ", size.B, size.T, size.H, size.G, size.K);
      options_.decode ? decode(dtype, size) : train(dtype, size);
      std::fflush(stdout);
    }
  }

 private:
  void train(DType dtype, Size s) {
    const auto N = s.B * s.T;
    const auto qkv = random(arena_, dtype, {N, s.H + 2 * s.G, s.K}),
               dqkv = random(arena_, dtype, qkv.shape);
    const auto out = random(arena_, dtype, {N, s.H, s.K}), dout = random(arena_, dtype, out.shape);
    const auto lse = random(arena_, DType::fp32, {s.B, s.H, s.T});
    const auto starts = integers(arena_, {s.B, s.T}, 0);
    const double flops = 2.0 * static_cast<double>(s.K * s.H * s.B * s.T * (s.T + 1));
    Rates peaks, forward, backward, both;
    for (int round = 0; round < options_.rounds; ++round) {
      peaks.add(measure_peak_flops(stream_, dtype));
      const double f =
          seconds_of([&] { attention_forward(stream_, scratch_, out, lse, qkv, starts); });
      const double b = seconds_of(
          [&] { attention_backward(stream_, scratch_, dqkv, dout, out, lse, qkv, starts); });
      forward.add(flops / f);
      backward.add(2.5 * flops / b);
      both.add(3.5 * flops / (f + b));
    }
    for (const auto* rates : {&forward, &backward, &both})
      std::printf("%7.1f %5.1f / %5.1f%%", rates->best() / 1e9, 100 * rates->best() / peaks.best(),
                  100 * rates->median() / peaks.median());
    std::printf("  %8.1f\n", peaks.best() / 1e9);
  }

  void decode(DType dtype, Size s) {
    const KvCache cache{random(arena_, dtype, {s.B, s.T, s.G, s.K}),
                        random(arena_, dtype, {s.B, s.T, s.G, s.K})};
    const auto qkv = random(arena_, dtype, {s.B, s.H + 2 * s.G, s.K});
    const auto out = random(arena_, dtype, {s.B, s.H, s.K});
    const auto last = integers(arena_, {s.B, 1}, static_cast<std::int32_t>(s.T - 1));
    const double bytes = 2.0 * static_cast<double>(cache.keys.bytes());
    Rates rates;
    for (int round = 0; round < options_.rounds; ++round)
      rates.add(bytes /
                seconds_of([&] { attention_cached(stream_, scratch_, out, cache, qkv, last); }));
    std::printf("%8.1f / %5.1f\n", rates.best() / 1e9, rates.median() / 1e9);
  }

  // Of one call, over at least 20 ms.
  double seconds_of(FunctionRef<void()> f) const {
    const double begin = now(options_.processor_time);
    double seconds = 0;
    int calls = 0;
    for (; seconds < 0.02; ++calls) {
      f();
      seconds = now(options_.processor_time) - begin;
    }
    return seconds / calls;
  }

  Options options_;
  Stream stream_;
  Arena arena_, scratch_;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--processor-time") {
      options.processor_time = true;
      options.threads = 1;
      continue;
    }
    if (++i == argc) throw UsageError(str(flag, ": expected a value"));
    const std::string_view value = argv[i];
    if (flag == "--threads")
      options.threads = std::atoi(argv[i]);
    else if (flag == "--rounds")
      options.rounds = std::atoi(argv[i]);
    else if (flag == "--dtype" && (value == "fp32" || value == "bf16"))
      options.dtypes = {value == "fp32" ? DType::fp32 : DType::bf16};
    else if (flag == "--set" && (value == "training" || value == "decode"))
      options.decode = value == "decode";
    else
      throw UsageError(str("unknown option ", flag, " ", value));
  }
  return options;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) try {
  const auto options = lockstep::bench::parse(argc, argv);
  lockstep::bench::Bench bench(options);
  for (const auto dtype : options.dtypes)
    bench.run(dtype);
} catch (const lockstep::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return e.exit_code();
}

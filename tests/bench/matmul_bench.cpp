// Matrix products beside the measured multiply-add peak, alternated in one run:
//
//   cmake --preset cpu -DLOCKSTEP_BENCHMARKS=ON && cmake --build --preset cpu --target matmul_bench
//   build/cpu/bench/matmul_bench [--threads 2] [--rounds 7] [--dtype fp32|bf16] [--set
//   training|byte|decode] [--onednn]
//
// Each round measures the peak (kernels/peak.h), then the product for at least 10 ms. Columns, for
// forward, backward_input and backward_weight each: best and median of the rounds, in percent of
// the best and median peak of the same rounds. Decoding products are bound by memory: GB/s of
// weight. --onednn adds oneDNN's products (sgemm and matmul in fp32, matmul in bf16), the better of
// the two rates in each round.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <thread>
#include <vector>

#include "core/cpu.h"
#include "core/philox.h"
#include "core/thread_pool.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"
#if LOCKSTEP_WITH_ONEDNN
#include "tests/bench/matmul_onednn.h"
#endif

namespace lockstep::bench {
namespace {

struct Size {
  std::int64_t tokens, inputs, outputs;
};

// GPT-2 124M with 4 x 256 tokens, parts of it with 512 and 4096, and its head.
const std::vector<Size> kTraining = {
    {1024, 768, 768},  {1024, 768, 2304}, {1024, 768, 3072}, {1024, 3072, 768}, {1024, 768, 50304},
    {512, 768, 768},   {512, 768, 3072},  {512, 3072, 768},  {4096, 768, 768},  {4096, 768, 3072},
    {4096, 3072, 768}, {2048, 128, 512},  {2048, 512, 128}};
// Byte models: width 384 with 16 x 256 tokens, width 256 with 6 x 256.
const std::vector<Size> kByte = {{4096, 384, 384},  {4096, 384, 1152}, {4096, 384, 1536},
                                 {4096, 1536, 384}, {4096, 384, 256},  {1536, 256, 256},
                                 {1536, 256, 768},  {1536, 256, 1024}, {1536, 1024, 256}};
const std::vector<Size> kDecode = {{1, 768, 2304},  {1, 3072, 768},  {1, 768, 50304},
                                   {4, 768, 50304}, {8, 768, 50304}, {16, 768, 50304},
                                   {16, 768, 2304}, {32, 768, 2304}};

struct Options {
  int threads = processors_allowed(), rounds = 7;
  std::vector<DType> dtypes = {DType::fp32, DType::bf16};
  std::vector<Size> sizes;
  bool decode = false, onednn = false, processor_time = false;
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

struct GeometricMean {
  double logarithms = 0;
  int count = 0;
  void add(double value) {
    logarithms += std::log(value);
    ++count;
  }
  double value() const { return std::exp(logarithms / std::max(count, 1)); }
};

struct Means {
  GeometricMean best, median;
};

Tensor random(Arena& arena, DType dtype, Shape shape) {
  Tensor t = arena.allocate("random", dtype, shape);
  for (std::int64_t i = 0; i < t.elements(); ++i) {
    const float v = 2 * uniform_open(static_cast<std::uint32_t>(i) * 2654435761u) - 1;
    if (dtype == DType::fp32)
      t.as<float>()[i] = v;
    else
      t.as<BFloat16>()[i] = to_bf16(v);
  }
  return t;
}

struct Operands {
  Operands(Arena& arena, DType dtype, Size s)
      : x(random(arena, dtype, {s.tokens, s.inputs})),
        weight(random(arena, dtype, {s.outputs, s.inputs})),
        y(random(arena, dtype, {s.tokens, s.outputs})),
        dx(random(arena, dtype, {s.tokens, s.inputs})),
        dweight(random(arena, DType::fp32, {s.outputs, s.inputs})) {}
  Tensor x, weight, y, dx, dweight;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        stream_(Device{}, "bench", Stream::Mode::immediate, options.threads),
        arena_(Device{}, Arena::Memory::host, std::int64_t{1} << 30),
        scratch_(Device{}, Arena::Memory::host, std::int64_t{1} << 28) {}

  void run(DType dtype) {
    std::printf(
        "%s, %d threads, %s: best / median, %s\n", name(dtype), options_.threads, name(cpu_level()),
        options_.decode ? "GB/s of weight" : "% of peak, which is the last column in Gflop/s");
    std::printf("%-18s %15s %15s %15s\n", "tokens,in,out", "forward", "backward_input",
                "backward_weight");
    for (auto& means : ours_)
      means = {};
    for (auto& means : theirs_)
      means = {};
    for (const auto& size : options_.sizes)
      row(dtype, size);
    if (options_.decode) return;
    print_means("geometric mean", ours_);
    if (options_.onednn) print_means("oneDNN", theirs_);
  }

 private:
  void row(DType dtype, Size s) {
    const Arena::Scope scope(arena_);
    const Operands o(arena_, dtype, s);
    const double flops = 2.0 * static_cast<double>(s.tokens * s.inputs * s.outputs);
    std::printf("%6ld,%5ld,%5ld", s.tokens, s.inputs, s.outputs);
    for (int product = 0; product < (options_.decode ? 1 : 3); ++product) {
      Rates peaks, ours, theirs;
      for (int round = 0; round < options_.rounds; ++round) {
        peaks.add(options_.decode ? 1 : measure_peak_flops(stream_, dtype));
        ours.add(calls_per_second([&] { call(product, o); }));
      }
      if (options_.decode) {
        const double bytes = static_cast<double>(o.weight.bytes()) / 1e9;
        std::printf("  %6.1f / %6.1f", ours.best() * bytes, ours.median() * bytes);
        continue;
      }
      print(ours, peaks, flops, product, ours_);
      if (options_.onednn) compare(product, o, dtype, flops, peaks);
      last_peak_ = peaks.best();
    }
    std::printf("  %8.1f\n", last_peak_ / 1e9);
    std::fflush(stdout);
  }

  // Calls a second, over at least 10 ms.
  double calls_per_second(FunctionRef<void()> f) const {
    const bool processor = options_.processor_time;
    const double begin = now(processor);
    double seconds = 0;
    int calls = 0;
    for (; seconds < 0.01; ++calls) {
      f();
      seconds = now(processor) - begin;
    }
    return calls / seconds;
  }

  void call(int product, const Operands& o) {
    if (product == 0)
      matmul_forward(stream_, scratch_, o.y, o.x, o.weight);
    else if (product == 1)
      matmul_backward_input(stream_, scratch_, o.dx, o.y, o.weight);
    else
      matmul_backward_weight(stream_, scratch_, o.dweight, {}, o.y, o.x);
  }

  void print(const Rates& rates, const Rates& peaks, double flops, int product, Means (&means)[3]) {
    const double best = 100 * rates.best() * flops / peaks.best();
    const double median = 100 * rates.median() * flops / peaks.median();
    means[product].best.add(best);
    means[product].median.add(median);
    std::printf("   %5.1f / %5.1f", best, median);
  }

  static void print_means(const char* what, const Means (&means)[3]) {
    GeometricMean best, median;
    std::printf("%-18s", what);
    for (const auto& m : means) {
      std::printf("   %5.1f / %5.1f", m.best.value(), m.median.value());
      best.add(m.best.value());
      median.add(m.median.value());
    }
    std::printf("   all %5.1f / %5.1f\n", best.value(), median.value());
  }

#if LOCKSTEP_WITH_ONEDNN
  // On a thread of its own: OpenMP's threads inherit the processors of the one that starts them,
  // and this one is pinned.
  void compare(int product, const Operands& o, DType dtype, double flops, const Rates& peaks) {
    Rates rates;
    std::thread([&] {
      use_all_processors();
      measure_onednn(product, o, dtype, rates);
    }).join();
    std::printf(" [");
    print(rates, peaks, flops, product, theirs_);
    std::printf("]");
  }

  void measure_onednn(int product, const Operands& o, DType dtype, Rates& rates) const {
    OneDnnProduct theirs = product == 0   ? OneDnnProduct(o.y, o.x, o.weight, false, true, false)
                           : product == 1 ? OneDnnProduct(o.dx, o.y, o.weight, false, false, false)
                                          : OneDnnProduct(o.dweight, o.y, o.x, true, false, true);
    theirs.run_matmul();  // compiles
    for (int round = 0; round < options_.rounds; ++round) {
      double rate = calls_per_second([&] { theirs.run_matmul(); });
      if (dtype == DType::fp32)
        rate = std::max(rate, calls_per_second([&] { theirs.run_sgemm(); }));
      rates.add(rate);
    }
  }
#else
  void compare(int, const Operands&, DType, double, const Rates&) {}
#endif

  Options options_;
  Stream stream_;
  Arena arena_, scratch_;
  Means ours_[3], theirs_[3];
  double last_peak_ = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  options.sizes = kTraining;
  options.sizes.insert(options.sizes.end(), kByte.begin(), kByte.end());
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--onednn") {
      options.onednn = LOCKSTEP_WITH_ONEDNN != 0;
      continue;
    }
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
    else if (flag == "--dtype")
      options.dtypes = {value == "fp32" ? DType::fp32 : DType::bf16};
    else if (flag == "--set" && value == "training")
      options.sizes = kTraining;
    else if (flag == "--set" && value == "byte")
      options.sizes = kByte;
    else if (flag == "--set" && value == "decode")
      options.sizes = kDecode, options.decode = true;
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

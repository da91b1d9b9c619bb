// A whole training step (forward, backward, AdamW) beside the measured multiply-add peak:
//
//   cmake --preset cpu -DLOCKSTEP_BENCHMARKS=ON && cmake --build --preset cpu --target step_bench
//   build/cpu/bench/step_bench [--model gpt2_124m|byte_10m|quickstart] [--dtype fp32|bf16]
//                              [--batch B] [--length T] [--steps n] [--recompute none|cheap|block]
//
// Random tokens; the first step warms up and is not counted. Each step is preceded by a measurement
// of the peak. Columns: model FLOP/s (6 a matrix weight and token, attention over the full square)
// in percent of the peak, best step over best peak and median over median; then where the median
// step's time went.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/peak.h"
#include "tests/bench/step_model.h"

namespace lockstep::bench {
namespace {

struct Options {
  std::string_view model = "gpt2_124m";
  DType dtype = DType::fp32;
  Recompute recompute = Recompute::none;
  std::int64_t batch = 4, length = 256;
  int steps = 7, threads = processors_allowed();
};

void run(const Options& options) {
  const TrainingConfig config{.model = model_of(options.model),
                              .recompute = options.recompute,
                              .compute = options.dtype,
                              .adamw = {},
                              .sequence_length = options.length,
                              .micro_batch_sequences = options.batch,
                              .global_batch_sequences = options.batch};
  Stream stream(Device{}, "bench", Stream::Mode::immediate, options.threads);
  Arenas arenas(Device{}, measure_training(config, Device{}, options.threads));
  Training training(config, stream, arenas);
  Arena batches(Device{}, Arena::Memory::host, std::int64_t{64} << 20);
  const Batch batch = random_batch(batches, config);
  const double start = seconds_of([&] { training.initialize(); });

  std::vector<double> peaks, steps;
  std::vector<StepTime> components;
  for (int i = 0; i <= options.steps; ++i) {
    const double peak = measure_peak_flops(stream, options.dtype);
    const double seconds = seconds_of([&] {
      training.begin_step(i + 1, 1e-4);
      training.micro_step(batch);
      training.finish_step();
    });
    const StepTime time = training.trace().take();
    if (i == 0) continue;
    peaks.push_back(peak);
    steps.push_back(seconds);
    components.push_back(time);
  }
  const auto tokens = static_cast<double>(config.step_tokens());
  const double flops = tokens * flops_per_token(config.model, options.length).square;
  const double best_peak = *std::max_element(peaks.begin(), peaks.end());
  const double best = *std::min_element(steps.begin(), steps.end()), middle = median(steps);
  std::printf("%.*s %s B %ld T %ld: %.2f GiB, start %.2f s, peak %.0f GFLOP/s (median %.0f)\n",
              static_cast<int>(options.model.size()), options.model.data(), name(options.dtype),
              static_cast<long>(options.batch), static_cast<long>(options.length),
              static_cast<double>(arenas.peak().device) / (1 << 30), start, best_peak / 1e9,
              median(peaks) / 1e9);
  std::printf("  best %.1f ms, %.0f tok/s, %.1f%% of peak; median %.1f ms, %.0f tok/s, %.1f%%\n",
              best * 1e3, tokens / best, 100 * flops / best / best_peak, middle * 1e3,
              tokens / middle, 100 * flops / middle / median(peaks));
  for (std::size_t i = 0; i < kComponents; ++i) {
    std::vector<double> seconds;
    for (const StepTime& step : components)
      seconds.push_back(step.seconds[i]);
    if (median(seconds) == 0) continue;
    std::printf("  %-14s %8.1f ms %5.1f%%\n", name(static_cast<Component>(i)),
                median(seconds) * 1e3, 100 * median(seconds) / middle);
  }
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) try {
  using namespace lockstep;
  bench::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i], value = argv[i + 1];
    if (flag == "--model") options.model = value;
    if (flag == "--dtype") options.dtype = value == "bf16" ? DType::bf16 : DType::fp32;
    if (flag == "--batch") options.batch = std::atoi(argv[i + 1]);
    if (flag == "--length") options.length = std::atoi(argv[i + 1]);
    if (flag == "--steps") options.steps = std::atoi(argv[i + 1]);
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--recompute")
      options.recompute = value == "block"   ? Recompute::block
                          : value == "cheap" ? Recompute::cheap
                                             : Recompute::none;
  }
  bench::run(options);
} catch (const lockstep::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return e.exit_code();
}

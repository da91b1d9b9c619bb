// Predicted and measured seconds of a step, of twelve runs over models, layouts of 1 to 4 ranks,
// recompute and micro-batches on this machine:
//
//   build/cpu/bench/plan_bench [--rounds n]
//
// Each run is calibrated (operators by a few logged steps, collectives by sweeps), then predicted
// from its recorded program, then measured; steps that are logged and that are not come by turns.
// Columns: predicted and measured median; the median of the rounds' ratios; per component.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/thread_pool.h"
#include "dist/thread_world.h"
#include "tests/bench/step_model.h"
#include "train/plan/cluster_step.h"

namespace lockstep::bench {
namespace {

struct Case {
  const char* model;
  DType dtype;
  int replicate, shard, tensor;
  Recompute recompute;
  std::int64_t micro_batch, micro_steps, length;
};

constexpr Case kCases[] = {
    {"quickstart", DType::fp32, 1, 1, 1, Recompute::none, 6, 1, 256},
    {"quickstart", DType::fp32, 1, 1, 1, Recompute::block, 6, 1, 256},
    {"byte_10m", DType::fp32, 1, 1, 1, Recompute::none, 4, 2, 256},
    {"byte_10m", DType::bf16, 1, 1, 1, Recompute::cheap, 8, 1, 256},
    {"gpt2_124m", DType::fp32, 1, 1, 1, Recompute::none, 1, 1, 256},
    {"byte_10m", DType::fp32, 1, 2, 1, Recompute::none, 4, 2, 256},
    {"byte_10m", DType::fp32, 2, 1, 1, Recompute::none, 4, 1, 256},
    {"byte_10m", DType::fp32, 1, 1, 2, Recompute::none, 4, 1, 256},
    {"quickstart", DType::fp32, 1, 2, 1, Recompute::cheap, 3, 1, 256},
    {"byte_10m", DType::fp32, 1, 4, 1, Recompute::none, 2, 1, 256},
    {"byte_10m", DType::fp32, 2, 2, 1, Recompute::block, 2, 1, 256},
    {"byte_10m", DType::fp32, 1, 2, 2, Recompute::none, 2, 1, 256},
};

TrainingConfig config_of(const Case& c) {
  const Mesh mesh{{c.replicate, c.shard, c.tensor}};
  return {.model = model_of(c.model),
          .recompute = c.recompute,
          .compute = c.dtype,
          .adamw = {},
          .sequence_length = c.length,
          .micro_batch_sequences = c.micro_batch,
          .global_batch_sequences = c.micro_batch * c.micro_steps * c.replicate * c.shard,
          .mesh = mesh};
}

struct Result {
  StepTime predicted;
  double measured = 0, ratio = 0;
  StepTime components;
};

Result run(const Case& c, int rounds) {
  const auto config = config_of(c);
  const int threads = config.mesh.world() == 1 ? processors_allowed() : 1;
  const auto bytes = measure_training(config, Device{}, threads);
  const auto program = record_step(config, Device{}, threads);
  Result result;
  run_thread_ranks(config.mesh.world(), [&](World& world) {
    Stream stream(Device{}, "bench", Stream::Mode::immediate, threads);
    Arenas arenas(Device{}, bytes);
    Training training(config, stream, arenas, make_comms(world, config.mesh));
    Arena batches(Device{}, Arena::Memory::host, std::int64_t{64} << 20);
    const Batch batch = random_batch(batches, config);
    training.initialize();
    std::int64_t step = 0;
    const auto take_step = [&] {
      world.exchange("");
      return seconds_of([&] {
        training.begin_step(++step, 1e-4);
        for (std::int64_t m = 0; m < c.micro_steps; ++m)
          training.micro_step(batch, m + 1 == c.micro_steps);
        training.finish_step();
        training.numbers(step);
        world.exchange("");
      });
    };
    for (int i = 0; i < 3; ++i)
      take_step();
    Comms comms = make_comms(world, config.mesh);
    const auto links = LinkTimes::measure(comms, stream);
    std::vector<double> measured;
    std::vector<std::unique_ptr<OpLog>> logs;
    std::vector<StepTime> components;
    for (int i = 0; i < rounds; ++i) {
      logs.push_back(std::make_unique<OpLog>());
      stream.set_op_log(logs.back().get());
      take_step();
      stream.set_op_log(nullptr);
      training.trace().take();
      measured.push_back(take_step());
      components.push_back(training.trace().take());
    }
    if (world.rank() != 0) return;
    std::vector<const OpLog*> all;
    for (const auto& log : logs)
      all.push_back(log.get());
    Cluster cluster;
    cluster.device = Device::Kind::cpu;
    cluster.ranks_per_node = config.mesh.world();
    cluster.threads = threads;
    cluster.hardware.fp32_flops = cluster.hardware.bf16_flops = 1e11;  // of what is not measured
    cluster.hardware.hbm_bytes_per_second = 5e9;
    cluster.operators = OperatorTimes(all);
    cluster.links = links;
    const auto unknown =
        std::ranges::count_if(program.log->entries(), [&](const OpLog::Entry& entry) {
          const bool computes = entry.what == OpLog::What::op &&
                                entry.op.kind != Op::Kind::collective &&
                                entry.op.kind != Op::Kind::transfer;
          return computes && !cluster.operators.seconds(entry.op);
        });
    result.predicted = step_time_on(cluster, program);
    result.measured = median(measured);
    result.ratio = result.predicted.total() / result.measured;
    for (std::size_t p = 0; p < kComponents; ++p) {
      std::vector<double> seconds;
      for (const StepTime& one : components)
        seconds.push_back(one.seconds[p]);
      result.components.seconds[p] = median(seconds);
    }
    if (unknown > 0)
      std::printf("%ld calls of operators that were not measured\n", static_cast<long>(unknown));
  });
  return result;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) try {
  using namespace lockstep;
  const int rounds = argc == 3 ? std::atoi(argv[2]) : 7;
  double sum = 0, worst = 0;
  for (const auto& c : bench::kCases) {
    const auto r = bench::run(c, rounds);
    std::printf(
        "%-10s %s r%d s%d t%d recompute %d micro %ld x %ld: predicted %.1f ms, measured %.1f ms, "
        "ratio %.3f\n",
        c.model, name(c.dtype), c.replicate, c.shard, c.tensor, static_cast<int>(c.recompute),
        static_cast<long>(c.micro_batch), static_cast<long>(c.micro_steps),
        1e3 * r.predicted.total(), 1e3 * r.measured, r.ratio);
    for (std::size_t p = 0; p < kComponents; ++p)
      if (r.predicted.seconds[p] > 0 || r.components.seconds[p] > 0)
        std::printf("    %-24s %8.2f ms, measured %8.2f ms\n", in_words(static_cast<Component>(p)),
                    1e3 * r.predicted.seconds[p], 1e3 * r.components.seconds[p]);
    std::fflush(stdout);
    sum += std::abs(r.ratio - 1);
    worst = std::max(worst, std::abs(r.ratio - 1));
  }
  std::printf("mean error %.1f%%, worst %.1f%%\n", 100 * sum / std::size(bench::kCases),
              100 * worst);
} catch (const lockstep::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return e.exit_code();
}

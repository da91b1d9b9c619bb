// Ranks as threads of one process beside one rank with as many threads, on the same batch:
//
//   build/cpu/bench/ranks_bench [--model byte_10m|gpt2_124m|quickstart] [--dtype fp32|bf16]
//                               [--shard d] [--tensor t] [--replicate r] [--batch B] [--length T]
//                               [--micro n] [--steps n]
//
// By turns: a step of one rank, one of the ranks. Then, of the ranks' steps, the time that rank 0
// spends in each group's collectives, waiting for others included: hidden while its compute stream
// computes, else exposed.
#include <cstdio>
#include <cstdlib>
#include <map>

#include "core/thread_pool.h"
#include "tests/bench/step_model.h"
#include "tests/support/thread_world.h"

namespace lockstep::bench {
namespace {

struct Options {
  std::string_view model = "byte_10m";
  DType dtype = DType::fp32;
  int replicate = 1, shard = 2, tensor = 1;
  std::int64_t batch = 16, length = 256, micro_steps = 1;
  int steps = 9, threads = processors_allowed();
};

using Intervals = std::vector<std::pair<double, double>>;

// Disjoint, ascending.
Intervals joined(Intervals all) {
  std::sort(all.begin(), all.end());
  Intervals disjoint;
  for (const auto& [begin, end] : all) {
    if (disjoint.empty() || begin > disjoint.back().second)
      disjoint.emplace_back(begin, end);
    else
      disjoint.back().second = std::max(disjoint.back().second, end);
  }
  return disjoint;
}

double total(const Intervals& all) {
  double sum = 0;
  for (const auto& [begin, end] : all)
    sum += end - begin;
  return sum;
}

// Of what is in both.
double common(const Intervals& a, const Intervals& b) {
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    a[i].second < b[j].second ? ++i : ++j;
  }
  return sum;
}

void print_communication(const Timeline& timeline, int steps) {
  Intervals busy;
  std::map<std::string, Intervals> groups;
  for (const auto& span : timeline.spans()) {
    if (span.kind == "unit") continue;
    const bool is_component = span.kind == "component";
    if (is_component && !span.name.starts_with("communication"))
      busy.emplace_back(span.begin, span.end);
    else if (!is_component)
      groups[span.kind].emplace_back(span.begin, span.end);
  }
  busy = joined(std::move(busy));
  std::printf("  %-26s %10s %10s %10s\n", "communication a step", "ms", "hidden", "exposed");
  for (auto& [group, spans] : groups) {
    const auto in_it = joined(std::move(spans));
    const double all = 1e3 * total(in_it) / steps, hidden = 1e3 * common(in_it, busy) / steps;
    std::printf("  %-26s %10.2f %10.2f %10.2f\n", group.c_str(), all, hidden, all - hidden);
  }
}

TrainingConfig config_of(const Options& options, const Mesh& mesh) {
  const auto data_ranks = mesh.world() / mesh.size(Axis::tensor);
  return {.model = model_of(options.model),
          .compute = options.dtype,
          .adamw = {},
          .sequence_length = options.length,
          .micro_batch_sequences = options.batch / options.micro_steps / data_ranks,
          .global_batch_sequences = options.batch,
          .mesh = mesh};
}

// A rank's training, and its batch.
class Rank {
 public:
  Rank(const TrainingConfig& config, const Arenas::Bytes& bytes, int threads, int micro_steps,
       Comms comms)
      : stream_(Device{}, "bench", Stream::Mode::immediate, threads),
        arenas_(Device{}, bytes),
        training_(config, stream_, arenas_, std::move(comms)),
        batches_(Device{}, Arena::Memory::host, std::int64_t{64} << 20),
        batch_(random_batch(batches_, config)),
        micro_steps_(micro_steps) {
    training_.initialize();
  }
  void step() {
    training_.begin_step(++step_, 1e-4);
    for (int m = 0; m < micro_steps_; ++m)
      training_.micro_step(batch_, m + 1 == micro_steps_);
    training_.finish_step();
    training_.numbers(step_);
  }
  Training& training() { return training_; }

 private:
  Stream stream_;
  Arenas arenas_;
  Training training_;
  Arena batches_;
  Batch batch_;
  int micro_steps_;
  std::int64_t step_ = 0;
};

void run(const Options& options) {
  const Mesh mesh{.replicate = options.replicate, .shard = options.shard, .tensor = options.tensor};
  const auto one = config_of(options, {}), many = config_of(options, mesh);
  const auto one_bytes = measure_training(one, Device{}, options.threads);
  const auto many_bytes = measure_training(many, Device{}, 1);
  const int micro = static_cast<int>(options.micro_steps);
  std::vector<double> alone, together, ratios;
  Timeline timeline;
  run_thread_ranks(mesh.world(), [&](World& world) {
    const bool first = world.rank() == 0;
    std::unique_ptr<Rank> single;
    if (first)
      single = std::make_unique<Rank>(one, one_bytes, options.threads, micro, make_comms());
    Rank rank(many, many_bytes, 1, micro, make_comms(world, mesh));
    const auto all_step = [&] {
      world.exchange("");
      return seconds_of([&] {
        rank.step();
        world.exchange("");
      });
    };
    all_step();
    if (first) single->step();
    for (int i = 0; i < options.steps; ++i) {
      world.exchange("");
      if (first) alone.push_back(seconds_of([&] { single->step(); }));
      const double seconds = all_step();
      if (!first) continue;
      together.push_back(seconds);
      ratios.push_back(alone.back() / seconds);
    }
    if (first) rank.training().set_timeline(&timeline);
    constexpr int kTraced = 3;
    for (int i = 0; i < kTraced; ++i)
      all_step();
    if (!first) return;
    rank.training().set_timeline(nullptr);
    const auto best = [](const std::vector<double>& v) {
      return 1e3 * *std::min_element(v.begin(), v.end());
    };
    std::printf("%.*s %s B %ld T %ld, %d x %d x %d ranks of one thread, %d micro-batches\n",
                static_cast<int>(options.model.size()), options.model.data(), name(options.dtype),
                static_cast<long>(options.batch), static_cast<long>(options.length),
                options.replicate, options.shard, options.tensor, micro);
    std::printf("  one rank, %d threads: best %.1f ms, median %.1f\n", options.threads, best(alone),
                1e3 * median(alone));
    std::printf("  the ranks:           best %.1f ms, median %.1f\n", best(together),
                1e3 * median(together));
    std::printf("  speed over one rank's: best %.3f, median %.3f\n", best(alone) / best(together),
                median(ratios));
    print_communication(timeline, kTraced);
  });
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) try {
  using namespace lockstep;
  bench::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i], value = argv[i + 1];
    const int number = std::atoi(argv[i + 1]);
    if (flag == "--model") options.model = value;
    if (flag == "--dtype") options.dtype = value == "bf16" ? DType::bf16 : DType::fp32;
    if (flag == "--batch") options.batch = number;
    if (flag == "--length") options.length = number;
    if (flag == "--micro") options.micro_steps = number;
    if (flag == "--steps") options.steps = number;
    if (flag == "--replicate") options.replicate = number;
    if (flag == "--shard") options.shard = number;
    if (flag == "--tensor") options.tensor = number;
  }
  bench::run(options);
} catch (const lockstep::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return e.exit_code();
}

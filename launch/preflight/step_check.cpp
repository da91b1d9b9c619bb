#include "launch/preflight/step_check.h"

#include <algorithm>
#include <memory>

#include "core/file.h"
#include "core/progress.h"
#include "core/units.h"
#include "launch/plan/plan_errors.h"
#include "launch/plan/step_program.h"
#include "launch/preflight/rank_waits.h"
#include "train/run/attention_choice.h"
#include "train/run/batch_split.h"
#include "train/run/memory_budget.h"
#include "train/run/run_config.h"
#include "train/step/memory.h"
#include "train/step/training.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStepsWindow = 30;  // seconds that steps of the model may take
constexpr double kMostMeeting = 45;  // seconds that a step may wait for other hosts
constexpr int kMostSteps = 9;
constexpr std::int64_t kMostMicroBatches = 3;  // per step: further ones would be equal

MemoryRoom room_of(const PreflightRank& rank) {
  const auto ranks = std::ssize(host_ranks(rank.topology, rank.world.rank()));
  auto room = room_here(rank.compute.device(), static_cast<int>(ranks));
  room.domain_ranks = smallest_domain(rank.topology);
  if (rank.on_gpus() && rank.transfers) room.gpu_bytes += rank.transfers->capacity_bytes();
  return room;
}

// Memory of the model without copies for checkpoints. Throws ConfigError if it does not fit.
Arenas::Bytes checked_bytes(const Config& config, const MemoryRoom& room) {
  const RunBytes bytes = run_bytes(config, room, false);
  require_room(config, bytes, room);
  return bytes.training;
}

// ModelSteps runs steps of the configured model on random tokens.
class ModelSteps {
 public:
  ModelSteps(const Config& config, PreflightRank& rank)
      : rank_(rank),
        config_(config),
        room_(room_of(rank)),
        bytes_(checked_bytes(config, room_)),
        arenas_(rank.compute.device(), bytes_, rank.world.allocate(bytes_.device)),
        training_(settings(config), rank.compute, arenas_,
                  make_comms(rank.world, rank.comms.mesh, &rank.topology, config.layout.reduce)),
        pinned_(rank.compute.device(), Arena::Memory::pinned_host,
                16 * config.train.micro_batch * config.train.sequence_length + (1 << 12)),
        batch_(training_.random_batch(pinned_)),
        micro_batches_(std::min(kMostMicroBatches, step_split(config).micro_batches)) {
    if (rank.on_gpus()) training_.choose_matmul_algorithms({});
    training_.initialize();
  }

  // Runs logged steps after a warm-up, and adds the time that this rank computes itself. If the
  // first step fills the window, it is the only one.
  void measure() {
    if (double seconds = logged_step(); seconds < kStepsWindow) {
      logs_.clear();
      if (seconds < kStepsWindow / 3) seconds = warm_step();
      const int steps = std::clamp(static_cast<int>(kStepsWindow / seconds), 1, kMostSteps);
      for (int i = 0; i < steps; ++i)
        logged_step();
    }
    rank_.add({.check = "a step's own operators",
               .unit = Finding::Unit::seconds,
               .tolerance = rank_.tolerances().steps,
               .of = plan_error_key(config_)},
              [&](Finding& f) { f.value = own_seconds(logs()); });
  }

  std::vector<const OpLog*> logs() const {
    std::vector<const OpLog*> all;
    for (const auto& log : logs_)
      all.push_back(log.get());
    return all;
  }

  // Memory that the process can use neither for arenas nor for NCCL. On CPUs it includes the code
  // pages loaded since the start, and the buffers that write checkpoints.
  std::int64_t constant_bytes() const {
    const auto later = file_memory_bytes() + RangeWriter::kDirectBytes;
    return rank_.own_bytes_before + (rank_.on_gpus() ? 0 : later);
  }

 private:
  TrainingConfig settings(const Config& config) const {
    auto settled = with_rows(config, config.data.rows);  // their attention masks documents
    settled.train.attention = attention_of(config, rank_.compute);
    auto training = training_config(settled);
    training.cuda_graphs = false;  // calls are timed one by one
    return training;
  }

  // Both return the seconds of the slowest rank.
  double warm_step() { return timed_step(nullptr); }
  double logged_step() { return timed_step(logs_.emplace_back(std::make_unique<OpLog>()).get()); }

  double timed_step(OpLog* log) {
    const auto begin = Clock::now();
    step(log);
    return largest_of_ranks(rank_.world, seconds_since(begin));
  }

  void step(OpLog* log) {
    rank_.world.exchange("");
    rank_.compute.set_op_log(log);
    training_.begin_step(++number_, 1e-4);
    for (std::int64_t m = 1; m <= micro_batches_; ++m)
      training_.micro_step(batch_, m == micro_batches_);
    training_.finish_step();
    training_.numbers(number_);
    rank_.compute.synchronize();
    rank_.compute.set_op_log(nullptr);
    if (log != nullptr && rank_.on_gpus()) log->settle();
    training_.trace().take();
    made_progress();
  }

  PreflightRank& rank_;
  const Config& config_;
  const MemoryRoom room_;
  const Arenas::Bytes bytes_;
  Arenas arenas_;
  Training training_;
  Arena pinned_;
  const Batch batch_;
  const std::int64_t micro_batches_;
  std::int64_t number_ = 0;
  std::vector<std::unique_ptr<OpLog>> logs_;  // of the measured steps
};

// Seconds that a step waits for data from other hosts at `slowest` bytes per second.
double meeting_seconds(PreflightRank& rank, const Config& config, double slowest) {
  if (slowest == 0) return 0;
  const auto program = record_step(training_config(config), rank.compute.device(),
                                   rank.compute.threads(), rank.world.rank(), &rank.topology);
  double bytes = 0;
  for (const auto& entry : program.log->entries()) {
    if (entry.what != OpLog::What::op || entry.op.kind != Op::Kind::collective) continue;
    if (program.place_of(entry.op.group).domains > 1) bytes += static_cast<double>(entry.op.bytes);
  }
  return largest_of_ranks(rank.world, bytes) / slowest;
}

}  // namespace

void require_room_for_steps(const PreflightRank& rank, const Config& config) {
  checked_bytes(config, room_of(rank));
}

StepCosts check_steps(PreflightRank& rank, const Config& config, double slowest) {
  if (const double seconds = meeting_seconds(rank, config, slowest); seconds > kMostMeeting) {
    rank.add_of_all({.check = "a step's own operators",
                     .failure = str("a step would wait ", human_seconds(seconds),
                                    " for other hosts, which send ",
                                    in_words(slowest, Finding::Unit::bytes_per_second))});
    return {};
  }
  ModelSteps steps(config, rank);
  steps.measure();
  return {.operators = OperatorTimes(steps.logs()),
          .wait_share = wait_share(rank, steps.logs()),
          .constant_bytes = steps.constant_bytes()};
}

}  // namespace lockstep

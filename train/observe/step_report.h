// StepReport: what one step did and cost, filled by train/observe/meter, shown by
// train/observe/step_line, train/observe/metrics_log and train/observe/tensorboard.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "core/component.h"
#include "core/system/gpu_monitor.h"
#include "data/remote/shard_cache.h"
#include "train/observe/stragglers.h"

namespace lockstep {

inline double known(double value) {  // 0 where it is not known
  return std::isfinite(value) ? value : 0;
}

struct StepReport {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0, steps = 0;  // this step, counted from 1, and the run's last
  double loss = kUnknown;            // mean over the step's unmasked tokens, nats
  double grad_norm = kUnknown;       // before clipping
  double loss_z = kUnknown, grad_norm_z = kUnknown;  // see train/observe/statistics.h
  double learning_rate = 0;
  bool skipped = false;           // no valid token, or a norm that is not finite: nothing changed
  std::int64_t valid_tokens = 0;  // of this step
  std::int64_t tokens_seen = 0;   // of the run, this step included (nominal, masked ones too)

  double step_seconds = 0;       // from the end of the step before, see Trainer::make_report
  double data_wait_seconds = 0;  // part of step_seconds
  // What the step's time went to: the sum is step_seconds, but for the checkpoint, which is no part
  // of it: what training waited for saves since the step before. All but that are NaN in a step
  // that was not timed.
  StepTime time{};
  double evaluation_seconds = 0;  // no part of step_seconds: evaluation and sample after this step
  double tokens_per_second = 0;   // nominal tokens of the step / step_seconds
  double model_flops_utilization = kUnknown;         // causal count, in [0, 1.05]
  double model_flops_utilization_square = kUnknown;  // full-square (PaLM) count
  double planned_utilization = kUnknown;             // the causal one, as it was planned
  bool peak_is_too_low = false;                      // for this step: both are unknown
  std::int64_t peak_bytes = 0;                       // of memory, so far
  std::int64_t limit_bytes = 0;                      // of the device; 0: unknown
  double eta_seconds = kUnknown;  // to the end of the run, with evaluations and saves

  std::optional<GpuReading> gpu;  // behind this step, where it was read (train/observe/gpu_watch.h)
  double joules_per_token = kUnknown;  // of all GPUs, taken to be as this one is
  std::optional<SlowestRank> slowest;  // of some steps before this one, where ranks compared them
  std::optional<ShardCache::Counts> shards;  // of distant data, since the start, on this machine
  std::optional<double> validation_loss;     // where this step evaluated
  std::optional<std::uint64_t> weight_hash;  // behind this step, where it was computed
};

}  // namespace lockstep

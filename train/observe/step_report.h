// StepReport: results and cost of one step. Trainer::make_report makes it; train/observe/step_line,
// metrics_log and tensorboard write it.
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

inline double known(double value) {  // returns 0 for an unknown value
  return std::isfinite(value) ? value : 0;
}

struct StepReport {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0, steps = 0;  // this step, counted from 1, and the run's last step
  double loss = kUnknown;            // mean over the step's unmasked tokens, nats
  double grad_norm = kUnknown;       // before clipping
  double loss_z = kUnknown, grad_norm_z = kUnknown;  // see train/observe/statistics.h
  double learning_rate = 0;
  bool skipped = false;           // no valid token or no finite norm, so no weight changed
  std::int64_t valid_tokens = 0;  // in this step
  std::int64_t tokens_seen = 0;   // in the run, with this step (nominal, masked ones too)

  double step_seconds = 0;       // from the end of the previous step, see Trainer::make_report
  double data_wait_seconds = 0;  // part of step_seconds
  // Time by component. The sum without the checkpoint is step_seconds. The checkpoint is the time
  // that training waited for saves since the previous step. The others are NaN in a step that was
  // not timed.
  StepTime time{};
  double evaluation_seconds = 0;  // evaluation and sample after this step, not in step_seconds
  double tokens_per_second = 0;   // nominal tokens of the step / step_seconds
  double model_flops_utilization = kUnknown;         // causal count, in [0, 1.05]
  double model_flops_utilization_square = kUnknown;  // full-square (PaLM) count
  double planned_utilization = kUnknown;             // planned, with the causal count
  // 80 % of similar runs have an MFU between these.
  double least_planned_utilization = kUnknown, most_planned_utilization = kUnknown;
  bool peak_is_too_low = false;   // for this step, so both MFUs are unknown
  std::int64_t peak_bytes = 0;    // memory in use, see Meter
  std::int64_t limit_bytes = 0;   // memory of the device; 0: unknown
  double eta_seconds = kUnknown;  // time to the end of the run, with evaluations and saves

  std::optional<GpuReading> gpu;       // after this step, if read (train/observe/gpu_telemetry.h)
  double joules_per_token = kUnknown;  // of all GPUs, assuming that each is like this one
  std::optional<SlowestRank> slowest;  // of the steps before this one, if ranks compared them
  std::optional<ShardCache::Counts> shards;  // of remote data, since the start, on this host
  std::optional<double> validation_loss;     // if this step evaluated
  std::optional<std::uint64_t> weight_hash;  // after this step, if it was computed
};

}  // namespace lockstep

// Meter computes the cost of a step from its wall time: throughput, MFU (model FLOPs utilization),
// and the remaining time of the run.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tensor.h"
#include "train/observe/step_report.h"

namespace lockstep {

// Model FLOP/s over the peak, with the causal and the full-square count of attention.
struct Utilization {
  double causal = StepReport::kUnknown, square = StepReport::kUnknown;
};
// Limit of the causal utilization. A larger value means that the peak was measured too low.
inline constexpr double kMostUtilization = 1.05;

class Meter {
 public:
  struct Config {
    std::int64_t steps = 0;        // number of steps of the run
    std::int64_t step_tokens = 0;  // nominal tokens of a step
    double flops_per_token = 0;    // model FLOPs, forward and backward, causal attention
    double flops_per_token_square = 0;
    double peak_flops = 0;           // FLOP/s of all ranks in the compute type; 0: unknown
    double fp8_flops_per_token = 0;  // part computed in fp8, the same in both counts
    double fp8_peak_flops = 0;
    Device device;  // device whose memory is reported
    struct Later {
      std::int64_t from_step = 0;
      double cost = 1;  // FLOPs of a step, over those of a step now
    };
    std::vector<Later> later{};    // later phases, in order
    std::int64_t limit_bytes = 0;  // size of its memory

    // Utilization at this rate of all ranks. Each matmul counts against the peak of its own type.
    // Unknown if the peak is unknown or too low.
    Utilization utilization(double tokens_per_second) const;
    bool is_peak_too_low(double tokens_per_second) const;
  };
  explicit Meter(const Config& config) : config_(config) {}

  const Config& config() const { return config_; }
  // Adds a measurement of peak_flops. The larger one counts, because other work only lowers it.
  void measured_peak(double flops) { config_.peak_flops = std::max(config_.peak_flops, flops); }

  // Returns the report of a step, without the values of the trainer: losses, learning rate,
  // components.
  //   step: counted from 1      seconds: its wall time
  StepReport step(std::int64_t step, double seconds);

  // Add time that the run spends between steps, once every `every_steps` (0: never again), to the
  // ETA.
  void spent_evaluating(double seconds, std::int64_t every_steps);
  void spent_saving(double seconds, std::int64_t every_steps);

 private:
  double eta_seconds(std::int64_t step) const;
  double cost_after(std::int64_t step) const;  // of the remaining steps, in steps of now

  Config config_;
  std::int64_t used_bytes_ = 0;
  double smooth_step_seconds_ = 0;  // exponential mean with a time constant of about 20 steps
  std::int64_t measured_steps_ = 0;
  double evaluation_seconds_per_step_ = 0, checkpoint_seconds_per_step_ = 0;
};

}  // namespace lockstep

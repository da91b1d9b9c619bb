// Meter: what a step cost. It takes wall times, and turns them into rates against the device's peak
// and into the time that is left.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tensor.h"
#include "train/observe/step_report.h"

namespace lockstep {

// Model FLOPs over the peak, by the causal and the full-square count of attention.
struct Utilization {
  double causal = StepReport::kUnknown, square = StepReport::kUnknown;
};
// No step reaches more of its peak by the causal count: the peak was then measured too low.
inline constexpr double kMostUtilization = 1.05;

class Meter {
 public:
  struct Config {
    std::int64_t steps = 0;        // of the run
    std::int64_t step_tokens = 0;  // nominal tokens of a step
    double flops_per_token = 0;    // model FLOPs, forward and backward, causal attention
    double flops_per_token_square = 0;
    double peak_flops = 0;           // FLOP/s of all ranks in the compute type; 0: unknown
    double fp8_flops_per_token = 0;  // of both counts, what is computed in fp8
    double fp8_peak_flops = 0;
    Device device;                 // whose memory is reported
    std::int64_t limit_bytes = 0;  // all that it has

    // At this rate of all ranks; a product counts by the peak of its own type. Unknown if the peak
    // is, or is too low.
    Utilization utilization(double tokens_per_second) const;
    bool is_peak_too_low(double tokens_per_second) const;
  };
  explicit Meter(const Config& config) : config_(config) {}

  const Config& config() const { return config_; }
  // A later measurement of peak_flops: the larger one counts, as other work only lowers one.
  void measured_peak(double flops) { config_.peak_flops = std::max(config_.peak_flops, flops); }

  // The report of a step, but for what only the trainer knows (losses, learning rate, components).
  //   step: counted from 1      seconds: its wall time
  StepReport step(std::int64_t step, double seconds);

  // Time that the run spends between steps, once every `every_steps` (0: never again), so that the
  // ETA counts it.
  void spent_evaluating(double seconds, std::int64_t every_steps);
  void spent_saving(double seconds, std::int64_t every_steps);

 private:
  double eta_seconds(std::int64_t step) const;

  Config config_;
  std::int64_t used_bytes_ = 0;
  double smooth_step_seconds_ = 0;  // mean that forgets with a time constant of about 20 steps
  std::int64_t measured_steps_ = 0;
  double evaluation_seconds_per_step_ = 0, checkpoint_seconds_per_step_ = 0;
};

}  // namespace lockstep

// Table of the step metrics. The log, its reader, TensorBoard and Prometheus take each metric from
// its row here. docs/formats.md and docs/observability.md list them.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/component.h"

// X(member of metrics.jsonl, value in a StepReport r, tag of TensorBoard, name in Prometheus and
// its help). An empty name means that the metric is absent there. The components of a step follow
// (core/component.h).
// clang-format off
#define LOCKSTEP_STEP_METRICS(X)                                                                           \
  X(loss, r.loss, "train/loss", "loss", "Loss of the last step, nats per token.")                          \
  X(grad_norm, r.grad_norm, "train/grad_norm", "gradient_norm", "Norm in the last step, before clipping.") \
  X(learning_rate, r.learning_rate, "train/learning_rate", "learning_rate", "Rate of the last step.")      \
  X(step_seconds, r.step_seconds, "speed/step_seconds", "step_seconds", "Wall time of the last step.")     \
  X(tokens_per_second, r.tokens_per_second, "speed/tokens_per_second", "tokens_per_second",                \
    "Throughput of the last step, over all ranks.")                                                        \
  X(mfu, r.model_flops_utilization, "speed/mfu", "mfu_ratio",                                              \
    "Model FLOP/s (causal attention) over the peak of all devices.")                                       \
  X(mfu_square, r.model_flops_utilization_square, "speed/mfu_square", "", "")                              \
  X(data_wait_seconds, r.data_wait_seconds, "speed/data_wait_seconds", "", "")                             \
  X(loss_z, r.loss_z, "", "", "")                                                                          \
  X(grad_norm_z, r.grad_norm_z, "", "", "")                                                                \
  X(skipped, r.skipped, "", "", "")                                                                        \
  X(valid_tokens, r.valid_tokens, "", "", "")                                                              \
  X(tokens_seen, r.tokens_seen, "", "", "")                                                                \
  X(peak_bytes, r.peak_bytes, "memory/peak_bytes", "", "")                                                 \
  X(evaluation_seconds, r.evaluation_seconds, "", "", "")                                                  \
  X(eta_seconds, r.eta_seconds, "", "eta_seconds", "Remaining time, with evaluations and saves.")
// clang-format on

namespace lockstep {

// Members of a line of metrics.jsonl, in the units of docs/formats.md. From `communication` on they
// are seconds, with the suffix "_seconds": first all communication in one, as in older files, then
// each Component.
enum class Metric : std::uint8_t {
#define LOCKSTEP_ENUMERATOR(member, value, tag, gauge, help) member,
  LOCKSTEP_STEP_METRICS(LOCKSTEP_ENUMERATOR)
#undef LOCKSTEP_ENUMERATOR
      validation_loss,
  time_seconds,
  communication
};
inline constexpr int kFirstPart = static_cast<int>(Metric::communication) + 1;
inline constexpr int kMetrics = kFirstPart + static_cast<int>(kComponents);

constexpr Metric part(Component component) {
  return static_cast<Metric>(kFirstPart + static_cast<int>(component));
}
const char* name(Metric metric);

}  // namespace lockstep

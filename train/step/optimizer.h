// Optimizer: AdamW on this rank's shards only. A second optimizer will earn an interface.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "dist/param_store.h"
#include "kernels/adamw.h"
#include "train/step/optimizer_ring.h"

namespace lockstep {

// What AdamWScalars::control says, on the host.
struct AdamWDecision {
  float grad_norm = 0;   // before clipping
  bool applied = false;  // false: the update was skipped
};
inline AdamWDecision read_control(ConstTensor control) {
  return {.grad_norm = control.as<float>()[4], .applied = control.as<float>()[3] != 0};
}

class Optimizer {
 public:
  struct Config {
    AdamWConfig adamw;            // decay applies to matrices, embedding and head only
    DType moments = DType::fp32;  // or bf16, rounded stochastically
  };

  // `params` outlives the optimizer.
  Optimizer(ParamStore& params, const Config& config) : params_(params), config_(config) {}

  // Moments and the count of updates, all zero. `params` is allocated already.
  //   offloaded: pinned memory for the moments, where the masters are already; see OptimizerRing
  void allocate(Arena& arena, Stream& stream, Arena* offloaded = nullptr);

  // What a step is told on the stream's device, [1] each.
  struct Step {
    ConstTensor learning_rate;  // fp32
    ConstTensor step;           // int32
    ConstTensor loss_sum;       // fp32
    ConstTensor valid_tokens;   // int32
  };

  // Scales gradients by nominal / valid tokens, clips by the global norm, updates, refreshes the
  // compute-type weights. Asynchronous. Without a valid token, or with a loss or norm that is not
  // finite, nothing changes.
  void step(Stream& stream, Arena& scratch, const Step& step);

  Tensor control() const { return control_; }  // what the last step decided, see read_control
  Tensor updates() const { return updates_; }  // [1] int32, saved with the moments
  std::span<const AdamWState> state() const { return state_; }  // by shard of the ParamStore

 private:
  void add_squares_of(const ParamShard& shard);
  void make_ring(Arena& arena, const Stream& stream);
  // Adds the runs of elements [begin, begin + n) of a shard, whose state is `state`.
  void add_runs(std::vector<AdamWRun>& runs, const ParamShard& shard, std::int64_t begin,
                const AdamWState& state) const;

  ParamStore& params_;
  Config config_;
  std::vector<AdamWState> state_;
  std::vector<std::vector<AdamWRun>> runs_;  // updated together: all, or by chunk of the ring
  std::optional<OptimizerRing> ring_;
  std::vector<ConstTensor> grads_;
  Tensor updates_, control_, squares_;
};

}  // namespace lockstep

// Optimizer: AdamW on this rank's shards only. A second optimizer will earn an interface.
#pragma once

#include <span>
#include <vector>

#include "dist/param_store.h"
#include "kernels/adamw.h"

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

  // The moments of one ParamShard, element for element.
  struct Moments {
    Tensor m, v;
  };

  // `params` outlives the optimizer.
  Optimizer(ParamStore& params, const Config& config) : params_(params), config_(config) {}

  // Moments and the count of updates, all zero. `params` is allocated already.
  void allocate(Arena& arena, Stream& stream);

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
  std::span<const Moments> moments() const { return moments_; }  // by shard of the ParamStore

 private:
  AdamWRun run_of(const ParamShard& shard, const Moments& moments, const Segment& segment) const;

  ParamStore& params_;
  Config config_;
  std::vector<Moments> moments_;
  std::vector<AdamWRun> runs_;  // of all shards
  std::vector<ConstTensor> grads_;
  Tensor updates_, control_, squares_;
};

}  // namespace lockstep

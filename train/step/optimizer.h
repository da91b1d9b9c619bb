// Optimizer runs AdamW on this rank's shards only. A second optimizer would justify an interface.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "dist/param_store.h"
#include "kernels/adamw.h"
#include "train/step/optimizer_ring.h"

namespace lockstep {

// The decision in AdamWScalars::control, on the host.
struct AdamWDecision {
  float grad_norm = 0;   // before clipping
  bool applied = false;  // false: the update was skipped
};
inline AdamWDecision read_control(ConstTensor control) {
  return {.grad_norm = control.as<float>()[4], .applied = control.as<float>()[3] != 0};
}

class Optimizer {
 public:
  static constexpr int kFirstUnits = 2;  // embedding and first block
  struct Config {
    AdamWConfig adamw;            // decays all weights except norms and biases
    DType moments = DType::fp32;  // or bf16, rounded stochastically
  };

  // `params` must outlive the optimizer.
  Optimizer(ParamStore& params, const Config& config) : params_(params), config_(config) {}

  // Allocates moments and the count of updates, all zero. `params` must be allocated already.
  //   offloaded: pinned memory for the moments; it holds the master weights already, see
  //              OptimizerRing
  void allocate(Arena& arena, Stream& stream, Arena* offloaded = nullptr);

  // The inputs of a step on the stream's device, [1] each.
  struct Step {
    ConstTensor learning_rate;  // fp32
    ConstTensor step;           // int32
    ConstTensor loss_sum;       // fp32
    ConstTensor valid_tokens;   // int32
  };

  // Scales gradients by nominal / valid tokens, clips by the global norm, updates, refreshes the
  // compute-type weights. Asynchronous. Nothing changes if there is no valid token, or if the loss
  // or the norm is not finite.
  void step(Stream& stream, Arena& scratch, const Step& step);

  Tensor control() const { return control_; }  // decision of the last step, see read_control
  Tensor updates() const { return updates_; }  // [1] int32, saved with the moments
  std::span<const AdamWState> state() const { return state_; }  // one per shard of the ParamStore

 private:
  void add_squares_of(const ParamShard& shard);
  void make_ring(Arena& arena, const Stream& stream);
  // Adds the runs of elements [begin, begin + n) of a shard with the state `state`.
  void add_runs(std::vector<AdamWRun>& runs, const ParamShard& shard, std::int64_t begin,
                const AdamWState& state) const;

  ParamStore& params_;
  Config config_;
  std::vector<AdamWState> state_;
  // Groups updated together: the first units, whose all-gathers the next step needs first, and the
  // others; or one per chunk of the ring.
  std::vector<std::vector<AdamWRun>> runs_;
  std::optional<OptimizerRing> ring_;
  std::vector<ConstTensor> grads_;
  Tensor updates_, control_, squares_;
};

}  // namespace lockstep

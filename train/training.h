// Training: the numbers of a run on this rank, and what one step does to them. It knows no files,
// clocks or logs. Built on Arena::measure and a measuring stream, the same code tells the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/mirror.h"
#include "core/trace.h"
#include "data/loader.h"
#include "model/transformer.h"
#include "train/device_batch.h"
#include "train/generate.h"
#include "train/loss_sum.h"
#include "train/optimizer.h"

namespace lockstep {

struct TrainingConfig {
  ModelConfig model;
  Recompute recompute = Recompute::none;
  DType compute = DType::fp32;       // of weights and activations: fp32 or bf16
  bool cudnn_attention = false;      // by cuDNN, which was prepared; no batch has document_start
  bool stochastic_rounding = false;  // bf16 weights without fp32 masters
  DType moments = DType::fp32;
  AdamWConfig adamw;  // nominal_tokens is derived
  float z_loss = 0.0f;
  std::int64_t sequence_length = 0;         // T
  std::int64_t micro_batch_sequences = 0;   // sequences that run through the model at once
  std::int64_t global_batch_sequences = 0;  // sequences of an optimizer step
  std::int64_t sample_tokens = 0;           // of text sampled during training, prompt included
  std::uint64_t seed = 0;                   // of initial weights and stochastic rounding

  std::int64_t step_tokens() const { return global_batch_sequences * sequence_length; }
};

class Training {
 public:
  // Allocates everything that lives as long as the run. `compute` and `arenas` outlive it.
  Training(const TrainingConfig& config, Stream& compute, Arenas& arenas);

  void initialize();  // weights from the seed, moments zero

  // One step: begin, a micro-batch or several, finish. Masked sequences (targets -1) count nothing.
  //   step: counted from 1
  void begin_step(std::int64_t step, double learning_rate);
  // Forward and backward; adds to the gradients. Once the event is done, the batch was read.
  Event micro_step(const Batch& batch);
  void finish_step();  // the optimizer

  // The losses of a micro-batch, without gradients. Waits for the device.
  LossSum evaluate(const Batch& batch);

  // What a step saw: the last one that was finished, or the one before. Waits for the device to
  // have done that step, no more.
  struct Numbers {
    double loss = 0;  // mean over valid tokens, nats; NaN without one
    std::int64_t valid_tokens = 0;
    double grad_norm = 0;  // of the step, before clipping
    bool applied = false;  // false: no valid token, or loss or norm not finite; nothing changed
  };
  Numbers numbers(std::int64_t step);

  // Tokens behind a prompt, while training pauses.
  std::vector<std::int32_t> sample(std::span<const std::int32_t> prompt, std::int64_t tokens,
                                   const Sampling& sampling);

  const TrainingConfig& config() const { return config_; }
  ParamStore& params() { return params_; }
  Optimizer& optimizer() { return optimizer_; }
  Transformer& transformer() { return transformer_; }
  Trace& trace() { return trace_; }

 private:
  struct Outcome {  // of a step, on the host
    std::int64_t step = 0;
    Mirror loss_sum, valid_tokens, control;
    Event done;
  };

  Outcome& outcome_of(std::int64_t step);
  StepContext context(const Batch& batch);
  Targets targets(const Batch& batch) const;

  TrainingConfig config_;
  Stream& compute_;
  Arenas& arenas_;
  Trace trace_;
  Comms comms_;
  ParamStore params_;
  Transformer transformer_;
  Optimizer optimizer_;
  Tensor learning_rate_, step_;
  Tensor loss_sum_, valid_tokens_;
  Mirror evaluated_loss_, evaluated_tokens_;
  std::array<Outcome, 2> outcomes_;  // of the last two steps, by turns
  std::int64_t step_number_ = 0;
  DeviceBatch batch_;
};

// The bytes that a run with this configuration peaks at, its loaders' buffers left out: a step, an
// evaluation and a sample are run on a measuring stream.
Arenas::Bytes measure_training(const TrainingConfig& config, Device device, int threads);

}  // namespace lockstep

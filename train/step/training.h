// Training: the numbers of a run on this rank, and what one step does to them. It knows no files,
// clocks or logs. Built on Arena::measure and a measuring stream, the same code tells the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/graph.h"
#include "core/mirror.h"
#include "core/trace.h"
#include "data/loader.h"
#include "kernels/product_choices.h"
#include "model/generate.h"
#include "model/transformer.h"
#include "train/step/device_batch.h"
#include "train/step/loss_sum.h"
#include "train/step/optimizer.h"
#include "train/step/rank_times.h"
#include "train/step/weight_hash.h"

namespace lockstep {

struct TrainingConfig {
  ModelConfig model;
  Recompute recompute = Recompute::none;
  bool offload_activations = false;  // of a GPU to pinned memory; not with cuda_graphs
  bool offload_optimizer = false;    // likewise masters and moments
  DType compute = DType::fp32;       // of weights and activations: fp32 or bf16
  bool cudnn_attention = false;      // by cuDNN, which was prepared; no batch has document_start
  bool stochastic_rounding = false;  // bf16 weights without fp32 masters
  Fp8Products fp8 = Fp8Products::off;
  DType fp8_gradients = DType::fp8_e5m2;
  DType moments = DType::fp32;
  AdamWConfig adamw;  // nominal_tokens and seed are derived
  float z_loss = 0.0f;
  std::int64_t sequence_length = 0;         // T
  std::int64_t micro_batch_sequences = 0;   // sequences that run through the model at once
  std::int64_t global_batch_sequences = 0;  // sequences of an optimizer step
  std::int64_t sample_tokens = 0;           // of text sampled during training, prompt included
  std::uint64_t seed = 0;                   // of initial weights and stochastic rounding
  bool cuda_graphs = false;                 // replay steps on a GPU, where they are not timed
  Mesh mesh = {};                           // of all ranks
  Sharding sharding = Sharding::full;       // along its shard axis
  std::int64_t keep_gathered = 0;           // blocks, see ParamStore

  std::int64_t step_tokens() const { return global_batch_sequences * sequence_length; }
};

class Training {
 public:
  // On a GPU the components of the first step are timed, of those whose number is a multiple of
  // this, and of those whose update is held: they are the ones that are not replayed from graphs.
  static constexpr std::int64_t kTimedSteps = 20;

  // Allocates everything that lives as long as the run. `compute` and `arenas` outlive it.
  //   comms: of the configuration's mesh
  Training(const TrainingConfig& config, Stream& compute, Arenas& arenas,
           Comms comms = make_comms());

  void initialize();  // weights from the seed, moments zero

  // On a GPU, before the first step: chooses the algorithm of each of its matrix products, and of
  // an evaluation's (kernels/product_choices.h), on a micro-batch of random tokens. Overwrites
  // gradients and what is trained on the device: initialize() again, or load. Masters stay.
  ChosenProducts choose_products(const ProductChoices& recorded);

  // One step: begin, a micro-batch or several, finish. Masked sequences (targets -1) count nothing.
  //   step: counted from 1      stop: 0, or the exit code with which this rank should stop
  void begin_step(std::int64_t step, double learning_rate, int stop = 0);
  // Forward and backward of as many sequences as config() says; adds to the gradients. Once the
  // event is done, the batch was read.
  //   last: of the step; with several ranks it says when gradients are summed over them
  Event micro_step(const Batch& batch, bool last = true);
  void finish_step();  // the optimizer
  // The next update waits for what is done beside this, as copies of what it changes.
  void hold_update(std::optional<Event> event) { held_by_ = std::move(event); }

  // The losses of a micro-batch without gradients, see LossReader.
  Event evaluate(const Batch& batch);  // once the event is done, the batch was read
  LossSum evaluated() { return evaluated_.read(); }

  // What a step saw: the last one that was finished, or the one before. Waits for the device to
  // have done that step, no more.
  struct Numbers {
    double loss = 0;  // mean over valid tokens, nats; NaN without one
    std::int64_t valid_tokens = 0;
    double grad_norm = 0;  // of the step, before clipping
    bool applied = false;  // false: no valid token, or loss or norm not finite; nothing changed
    int stop = 0;          // the largest that a rank said at the step's begin: the same on all
  };
  Numbers numbers(std::int64_t step);

  // A micro-batch of random tokens, one document each, that takes 12 bytes a token of `pinned`.
  Batch random_batch(Arena& pinned) const;

  // Tokens behind a prompt, while training pauses.
  std::vector<std::int32_t> sample(std::span<const std::int32_t> prompt, std::int64_t tokens,
                                   const Sampling& sampling);

  const TrainingConfig& config() const { return config_; }
  ParamStore& params() { return params_; }
  Optimizer& optimizer() { return optimizer_; }
  WeightHash& weight_hash() { return *weight_hash_; }
  RankTimes& rank_times() { return *rank_times_; }
  Transformer& transformer() { return transformer_; }
  Trace& trace() { return trace_; }
  void set_timeline(Timeline* timeline);  // of streams that compute or talk; no replay meanwhile

 private:
  struct Outcome {  // of a step, on the host
    std::int64_t step = 0;
    Mirror loss_sum, valid_tokens, control, stop;
    Event done;
  };

  // Does `work`, which gives the device the same in every step.
  void repeat(Graph& graph, FunctionRef<void()> work);
  Outcome& outcome_of(std::int64_t step);
  StepContext context(const Batch& batch);
  Targets targets(const Batch& batch) const;

  TrainingConfig config_;
  std::optional<Event> held_by_;
  Stream& compute_;
  Arenas& arenas_;
  std::optional<Stream> copies_;  // beside compute_, where something is offloaded
  Trace trace_;
  Comms comms_;
  ParamStore params_;
  Transformer transformer_;
  Optimizer optimizer_;
  Tensor learning_rate_, step_;
  Tensor loss_sum_, valid_tokens_, stop_;
  LossReader evaluated_;
  std::optional<WeightHash> weight_hash_;
  std::optional<RankTimes> rank_times_;
  std::array<Outcome, 2> outcomes_;  // of the last two steps, by turns
  std::int64_t step_number_ = 0;
  bool is_timed_ = true;  // this step
  Graph begin_, micro_step_, finish_;
  DeviceBatch batch_;
};

// What a run does beside steps, on a measuring stream: an evaluation, a hash of the weights, a
// sample.
void measure_beside_steps(Training& training, Stream& compute);

// The bytes that rank `rank` of a run with this configuration peaks at, its loaders' buffers and
// HostState left out: a step, an evaluation and a sample are run on a measuring stream.
Arenas::Bytes measure_training(const TrainingConfig& config, Device device, int threads,
                               int rank = 0);

}  // namespace lockstep

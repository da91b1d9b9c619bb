// Training holds the tensors of a run on this rank, and computes its steps. It uses no files,
// clocks or logs. On Arena::measure and a measuring stream, the same code measures its memory.
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
#include "data/batch.h"
#include "kernels/matmul_algorithms.h"
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
  bool offload_activations = false;  // to pinned memory, on a GPU; not with cuda_graphs
  bool offload_optimizer = false;    // the same for master weights and moments
  DType compute = DType::fp32;       // of weights and activations: fp32 or bf16
  bool cudnn_attention = false;      // by cuDNN, prepared before; no batch has document_start
  bool stochastic_rounding = false;  // bf16 weights without fp32 master weights
  Fp8Matmuls fp8 = Fp8Matmuls::off;
  DType fp8_gradients = DType::fp8_e5m2;
  DType moments = DType::fp32;
  AdamWConfig adamw;  // nominal_tokens and seed are derived
  float z_loss = 0.0f;
  std::int64_t sequence_length = 0;         // T
  std::int64_t micro_batch_sequences = 0;   // sequences of a micro-batch
  std::int64_t global_batch_sequences = 0;  // sequences of a global batch
  std::int64_t sample_tokens = 0;           // length of a sample during training, with its prompt
  std::uint64_t seed = 0;                   // of initial weights and stochastic rounding
  bool cuda_graphs = false;                 // replay steps that are not timed, on a GPU
  Mesh mesh = {};                           // mesh of all ranks
  Sharding sharding = Sharding::full;       // along the shard axis
  Reduce reduce = Reduce::fp32;             // see ReduceRing
  std::int64_t tensor_chunks = 1;           // see StepContext
  std::int64_t keep_gathered = 0;           // number of blocks, see ParamStore

  std::int64_t step_tokens() const { return global_batch_sequences * sequence_length; }
};

class Training {
 public:
  // On a GPU, these steps are timed by component and not replayed from graphs: the first step, each
  // step whose number is a multiple of this, and steps whose update is held.
  static constexpr std::int64_t kTimedSteps = 20;

  // Allocates everything that lives as long as the run. `compute` and `arenas` must outlive this.
  //   comms: communicators of the configuration's mesh and `reduce`
  Training(const TrainingConfig& config, Stream& compute, Arenas& arenas,
           Comms comms = make_comms());

  void initialize();  // weights from the seed, moments zero

  // Chooses the algorithm of each matmul of a step and of an evaluation
  // (kernels/matmul_algorithms.h), with a micro-batch of random tokens. Call it on a GPU before the
  // first step. It overwrites the gradients and the weights on the device, but no master weights:
  // initialize() or load again.
  ChosenAlgorithms choose_matmul_algorithms(const MatmulAlgorithms& recorded);

  // A step is begin_step(), one or more micro_step(), and finish_step(). Masked sequences (targets
  // -1) do not count.
  //   step: counted from 1      signal: a number for the other ranks, see Numbers
  void begin_step(std::int64_t step, double learning_rate, int signal = 0);
  // Runs forward and backward of a micro-batch, and adds to the gradients. The batch may be
  // released after the returned event.
  //   last: of the step; then gradients are summed over several ranks
  Event micro_step(const Batch& batch, bool last = true);
  void finish_step();  // the optimizer
  // Makes the next update wait for `event`, for example for copies of the state that it changes.
  void hold_update(std::optional<Event> event) { held_by_ = std::move(event); }

  // Loss of a micro-batch without gradients, see LossReader.
  Event evaluate(const Batch& batch);  // the batch may be released after the event
  LossSum evaluated() { return evaluated_.read(); }

  // The numbers of the last finished step or of the one before it. Waits until the device has
  // finished that step, and no longer.
  struct Numbers {
    double loss = 0;  // mean over valid tokens in nats; NaN without valid tokens
    std::int64_t valid_tokens = 0;
    double grad_norm = 0;  // of the step, before clipping
    bool applied = false;  // false: no valid token, or loss or norm not finite; nothing changed
    int signal = 0;        // largest `signal` of a rank at begin_step(); the same on all ranks
  };
  Numbers numbers(std::int64_t step);

  // A micro-batch of random tokens, one document per sequence; takes 12 bytes per token of
  // `pinned`.
  Batch random_batch(Arena& pinned) const;

  // Samples tokens after a prompt, while training pauses.
  std::vector<std::int32_t> sample(std::span<const std::int32_t> prompt, std::int64_t tokens,
                                   const Sampling& sampling);

  const TrainingConfig& config() const { return config_; }
  ParamStore& params() { return params_; }
  Optimizer& optimizer() { return optimizer_; }
  WeightHash& weight_hash() { return *weight_hash_; }
  RankTimes& rank_times() { return *rank_times_; }
  Transformer& transformer() { return transformer_; }
  Trace& trace() { return trace_; }
  // Sets the timeline of compute and communication streams, which disables graph replay.
  void set_timeline(Timeline* timeline);

 private:
  struct Outcome {  // results of a step, on the host
    std::int64_t step = 0;
    Mirror loss_sum, valid_tokens, control, signal;
    Event done;
  };

  // Runs `work`, which enqueues the same in every step, or replays its graph.
  void repeat(Graph& graph, FunctionRef<void()> work);
  Outcome& outcome_of(std::int64_t step);
  StepContext context(const Batch& batch);
  Targets targets(const Batch& batch) const;

  TrainingConfig config_;
  std::optional<Event> held_by_;
  Stream& compute_;
  Arenas& arenas_;
  std::optional<Stream> copies_;  // stream for offloading, if anything is offloaded
  Trace trace_;
  Comms comms_;
  ParamStore params_;
  Transformer transformer_;
  Optimizer optimizer_;
  Tensor learning_rate_, step_;
  Tensor loss_sum_, valid_tokens_, signal_;
  LossReader evaluated_;
  std::optional<WeightHash> weight_hash_;
  std::optional<RankTimes> rank_times_;
  std::array<Outcome, 2> outcomes_;  // of the last two steps, used alternately
  std::int64_t step_number_ = 0;
  bool is_timed_ = true;  // of the current step
  Graph begin_, first_micro_step_, micro_step_, finish_;
  bool is_first_ = true;  // whether the next micro-batch is the first of its step
  DeviceBatch batch_;
};

// Runs what a run does between steps, on a measuring stream: an evaluation, a weight hash, and a
// sample.
void measure_beside_steps(Training& training, Stream& compute);

// Peak bytes of rank `rank` of a run with this configuration, without loader buffers and
// HostStaging. It runs a step, an evaluation and a sample on a measuring stream.
Arenas::Bytes measure_training(const TrainingConfig& config, Device device, int threads,
                               int rank = 0);

}  // namespace lockstep

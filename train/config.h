// Config: all settings of a run, as plain values. The initializer of a member is its default.
// launch/option_table.cpp describes each key: meaning, unit, range, and defaults that depend on
// other keys. launch/config.h resolves a Config and checks it against that description.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "data/source.h"
#include "dist/topology/mesh.h"
#include "model/block.h"
#include "model/config.h"

namespace lockstep {

inline constexpr std::array<std::string_view, 4> kDecayNames{"cosine", "linear", "constant", "wsd"};

struct Config {
  enum class Decay : unsigned char { cosine, linear, constant, wsd };
  enum class Fp8Gradients : unsigned char { e5m2, e4m3 };
  enum class CudaGraphs : unsigned char { automatic, on, off };
  enum class Attention : unsigned char { automatic, cudnn, own };

  ModelConfig model;
  RopeScaling rope_scaling{.factor = 1};  // keys model.rope_scaling_*; model.rope_scaling follows

  struct Train {
    std::int64_t steps = 1000;
    std::int64_t tokens = 0;            // 0: the run has `steps`, else they follow from it
    std::int64_t batch_tokens = 65536;  // global batch: tokens of a step, over all ranks
    std::int64_t sequence_length = 0;
    std::int64_t micro_batch = 0;           // sequences of one forward and backward pass, on a rank
    Recompute recompute = Recompute::none;  // activation checkpointing
    bool offload_activations = false;
    bool offload_optimizer = false;
    CudaGraphs cuda_graphs = CudaGraphs::automatic;
    Attention attention = Attention::automatic;  // requested kernels, see attention_of
    std::int64_t threads = 0;                    // 0: every CPU core this process may use
    std::uint64_t seed = 1;
    std::string init_from;  // a run, checkpoint or Hugging Face directory; empty: random weights
    std::int64_t stall_seconds = 50;  // a job of several ranks aborts after this without progress
    std::int64_t weight_hash_every_steps = 100;  // 0: only with checkpoints
    std::int64_t most_skipped = 10;              // consecutive skipped updates before the run stops

    bool offloads() const { return offload_activations || offload_optimizer; }
  } train;

  // Mesh of the run, see train/layout.h.
  struct Layout {
    std::int64_t ranks = 1;  // number of started ranks; there is no key for it
    std::int64_t replicate = 1, tensor = 1, shard = 1;
    Sharding sharding = Sharding::full;
    Reduce reduce = Reduce::fp32;
    std::int64_t tensor_chunks = 1;  // of a micro-batch, see model/sequence.h
    std::int64_t keep_gathered = 0;  // blocks whose weights stay gathered between micro-batches
  } layout;

  struct Optimizer {
    double learning_rate = 6e-4;
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double weight_decay = 0.1;
    double clip_norm = 1;  // 0: no clipping
    double z_loss = 0;     // coefficient of the square of the log of the softmax's denominator
  } optimizer;

  struct Schedule {
    Decay kind = Decay::cosine;
    std::int64_t warmup_steps = 0;
    std::int64_t warmup_tokens = 0;  // 0: warmup_steps holds, else it follows from this
    double decay_fraction = 0;       // of train.steps
    std::int64_t decay_steps = 0;    // 0: decay_fraction holds
    double final_ratio = 0;          // of optimizer.learning_rate
  } schedule;

  // A later part of the schedule, see [[phase]].
  struct RatePhase {
    std::int64_t from_step = 0;  // it begins after this step
    Schedule schedule;
    std::optional<double> peak;  // absent: the rate of from_step
    bool is_live = false;        // of a live change (train/run/live_requests.h)
  };
  std::vector<RatePhase> rate_phases;  // in order; equal in all phases, as is `schedule`

  struct Data {
    std::vector<std::string> train, validation;  // paths of directories or shards, see list_shards
    std::vector<DataSource> source;              // mixture, in place of train
    RowKind rows = RowKind::automatic;
    bool document_mask = false;
    std::int64_t shuffle_shards = 0;  // number of shards shuffled together; 0: all
    std::uint64_t seed = 0;
    std::string cache_directory;   // of remote shards; empty: HostShards::default_directory
    std::int64_t cache_bytes = 0;  // 0: half of the free space

    std::vector<DataSource> sources() const {
      return source.empty() ? std::vector<DataSource>{{.paths = train}} : source;
    }
  } data;

  struct Eval {
    std::int64_t every_steps = 250;  // 0: only at the end
    std::int64_t tokens = 131072;    // 0: all
  } eval;

  struct Checkpoint {
    enum class Files : unsigned char { rank, node };

    std::int64_t every_steps = 1000;  // 0: only at the end
    std::int64_t most_failed = 10;    // consecutive failed saves before the run stops
    std::int64_t keep_last = 2;
    std::int64_t keep_every_steps = 0;  // 0: no checkpoint is kept because of its step
    std::int64_t keep_best = 0;
    Files files = Files::rank;      // one file per rank, or per host
    std::string local_directory;    // of each host, where checkpoints are saved first; empty: none
    bool partner_copies = false;    // another host keeps a copy of each local_directory
    std::string archive_directory;  // copies of checkpoints of keep_every_steps; empty: none
  } checkpoint;

  struct Log {
    std::int64_t every_steps = 1;
    bool tensorboard = true;
    std::int64_t sample_every_steps = 0;  // 0: never
    std::string sample_prompt;
    std::int64_t sample_tokens = 64;
    std::string prometheus_file = "metrics.prom";  // relative to the run's directory; empty: none
    std::int64_t metrics_port = 0;                 // on rank 0; 0: none
    std::string metrics_address = "127.0.0.1";     // empty: every address of the host
  } log;

  struct Plan {
    std::string cluster;  // file that describes the run's hardware; empty: the GPU, if known
    std::int64_t compare_every_steps = 100;  // 0: never
  } plan;

  struct Precision {
    DType compute = DType::fp32;
    bool master_weights = true;  // fp32, for bf16 weights; false: stochastic rounding
    Fp8Matmuls fp8 = Fp8Matmuls::off;
    Fp8Gradients fp8_gradients = Fp8Gradients::e5m2;
    DType moments = DType::fp32;
  } precision;
};

}  // namespace lockstep

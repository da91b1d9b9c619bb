// Config: everything a person may set about a run, as plain values. A member's initialiser is its
// default; launch/options.cpp describes each key (meaning, unit, range, defaults that depend on
// other keys), and what launch/config.h resolves has been checked against it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "data/source.h"
#include "dist/topology/mesh.h"
#include "model/block.h"
#include "model/config.h"

namespace lockstep {

struct Config {
  enum class Decay : unsigned char { cosine, linear, constant, wsd };
  enum class Fp8Gradients : unsigned char { e5m2, e4m3 };
  enum class CudaGraphs : unsigned char { automatic, on, off };
  enum class Attention : unsigned char { automatic, cudnn, own };

  ModelConfig model;
  RopeScaling rope_scaling{.factor = 1};  // keys model.rope_scaling_*; model.rope_scaling follows

  struct Train {
    std::int64_t steps = 1000;
    std::int64_t batch_tokens = 65536;  // of a step, over all ranks
    std::int64_t sequence_length = 0;
    std::int64_t micro_batch = 0;  // sequences of one forward and backward
    Recompute recompute = Recompute::none;
    bool offload_activations = false;
    bool offload_optimizer = false;
    CudaGraphs cuda_graphs = CudaGraphs::automatic;
    Attention attention = Attention::automatic;  // what a run takes, see attention_of
    std::int64_t threads = 0;                    // 0: every processor this process may run on
    std::uint64_t seed = 1;
    std::string init_from;  // a run, checkpoint or Hugging Face directory; empty: random weights
    std::int64_t stall_seconds = 50;             // without progress: all of several ranks end
    std::int64_t weight_hash_every_steps = 100;  // 0: only with checkpoints
    std::int64_t most_skipped = 10;              // updates skipped in a row before the run stops

    bool offloads() const { return offload_activations || offload_optimizer; }
  } train;

  // How the ranks of a run share it, see train/layout.h.
  struct Layout {
    std::int64_t ranks = 1;  // no key: as many as were started
    std::int64_t replicate = 1, tensor = 1, shard = 1;
    Sharding sharding = Sharding::full;
    std::int64_t keep_gathered = 0;  // blocks that stay whole between micro-batches
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
    double decay_fraction = 0;  // of train.steps
    double final_ratio = 0;     // of optimizer.learning_rate
  } schedule;

  struct Data {
    std::vector<std::string> train, validation;  // directories or shards, see list_shards
    std::vector<DataSource> source;              // a mixture, in place of train
    RowKind rows = RowKind::automatic;
    bool document_mask = false;
    std::int64_t shuffle_shards = 0;  // 0: all windows are shuffled together
    std::uint64_t seed = 0;
    std::string cache_directory;   // of distant shards; empty: NodeFiles::default_directory
    std::int64_t cache_bytes = 0;  // 0: half of what is free

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
    std::int64_t keep_last = 2;
    std::int64_t keep_every_steps = 0;  // 0: none for its step
    std::int64_t keep_best = 0;
    Files files = Files::rank;      // who writes one: each rank, or all of a machine
    std::string local_directory;    // of each machine, where they are saved first; empty: none
    bool partner_copies = false;    // what a machine has there another one has too
    std::string archive_directory;  // of those of keep_every_steps; empty: none
  } checkpoint;

  struct Log {
    std::int64_t every_steps = 1;
    bool tensorboard = true;
    std::int64_t sample_every_steps = 0;  // 0: never
    std::string sample_prompt;
    std::int64_t sample_tokens = 64;
    std::string prometheus_file = "metrics.prom";  // in the run's directory; empty: none
    std::int64_t metrics_port = 0;                 // of rank 0; 0: none
    std::string metrics_address = "127.0.0.1";     // empty: every address of the machine
  } log;

  struct Plan {
    std::string cluster;  // file that describes what the run is on; empty: the GPU, where known
    std::int64_t compare_every_steps = 100;  // 0: never
  } plan;

  struct Precision {
    DType compute = DType::fp32;
    bool master_weights = true;  // in fp32 beside bf16 weights; without: stochastic rounding
    Fp8Products fp8 = Fp8Products::off;
    Fp8Gradients fp8_gradients = Fp8Gradients::e5m2;
    DType moments = DType::fp32;
  } precision;
};

}  // namespace lockstep

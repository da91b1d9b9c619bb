// Loader provides the batches of a run. The batch of a step is a function of the seed and of the
// step's first sample. That number is the only position to save, and a resumed or resized run reads
// the same tokens in the same order. Threads read ahead into pinned buffers; a step allocates
// nothing.
//
// Micro-step m of data rank r of R (B sequences each) has the sequences [(m R + r) B, (m R + r + 1)
// B) of the step's global batch. If the batch is not divisible, the last sequences are masked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/stream.h"
#include "data/batch.h"
#include "data/sources.h"

namespace lockstep {

class Loader {
 public:
  struct Config {
    std::vector<DataSource> sources;
    std::uint64_t seed = 0;  // seed of the order
    int sequence_length = 0;
    std::int64_t global_batch_sequences = 0;  // sequences per step, over all data ranks
    std::int64_t vocabulary = 0;  // of the model; a token id from it on is an error; 0: any
    bool document_mask = false;   // false: each row that is not packed counts as one document
    RowKind rows = RowKind::automatic;
    std::int64_t shuffle_shards = 0;  // for windows: number of shards shuffled together; 0: all
    bool shuffle = true;              // false: rows in the order of the only dataset
    bool repeat = true;  // false: samples from samples() on are masked (for one evaluation)
    std::int64_t most_samples = 0;  // upper limit of samples(); 0: all rows
    ShardFiles* files = nullptr;    // opens the shards and outlives the loader; null: local files
  };

  // `sequences`: of one micro-batch of this rank. The buffers come from `pinned`, which may be a
  // measuring arena: threads start, and memory is touched, only at the first batch(). Throws as
  // Sources does. The destructor waits for the threads, which may wait for a shard. Stop files that
  // fetch before that (ShardFiles::stop, StopOnError).
  Loader(const Config& config, int sequences, int data_rank, int data_ranks, Arena& pinned);
  // The same with open sources, which match sources_of(config).
  Loader(const Config& config, Sources sources, int sequences, int data_rank, int data_ranks,
         Arena& pinned);
  static Sources::Config sources_of(const Config& config);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  const Sources& sources() const;
  const Dataset& dataset() const { return sources().dataset(0); }
  bool document_mask() const;  // whether batches have document_start; always with packed rows

  // Sets the data history of a resumed run. No batch may be held.
  void go_on(DataHistory history);

  // Number of micro-batches that each data rank computes for a step of `step_sequences`. The
  // sequences beyond those of the step are masked.
  static std::int64_t micro_steps_of(std::int64_t step_sequences, std::int64_t sequences,
                                     std::int64_t data_ranks);

  // Bytes that a loader takes from `pinned`.
  static std::int64_t pinned_bytes(int sequences, int sequence_length);

  std::int64_t samples() const;       // rows of all sources, at most most_samples
  std::int64_t step_samples() const;  // samples per step of all ranks: the global batch
  int micro_steps() const;  // per step: global batch / (data_ranks * sequences), rounded up
  // First of the `sequences` samples of this rank's micro-batch.
  std::int64_t first_sample_of(std::int64_t first_sample, int micro_step) const;

  // Returns micro-batch `micro_step` of the step whose first sample is `first_sample`. Waits only
  // if the reading threads are late; waited_seconds() reports that time. Any position is allowed;
  // reading ahead assumes the one after the last call. Throws the DataError of reading this batch,
  // or TransientError if no reading thread can be started. At most kBuffers - 1 batches may be held
  // at a time.
  Batch batch(std::int64_t first_sample, int micro_step);

  // Releases the batch: its buffer may be refilled once `copied` is done. Do not use its tensors
  // afterwards.
  void release(const Batch& batch, Event copied = {});

  double waited_seconds() const;  // time spent in batch(), since construction

  // Number of shards per source that a cache needs room for. Remote shards are fetched ahead and
  // closed after use. A number above the shards of a source means all of them.
  static std::int64_t shards_at_once(const Config& config);

  static constexpr std::int64_t kBuffers = 4;  // one in use, three read ahead
  static constexpr std::int64_t kThreads = 2;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

// Loader: the batch of a step is a function of the seed and of the step's first sample, so there is
// no position to save but that number, and a resumed or resized run reads the same tokens in the
// same order. Threads read ahead into pinned buffers; a step allocates nothing.
//
// Of a step's global batch, micro-step m of data rank r (of R, B sequences each) holds the
// sequences
// [(m R + r) B, (m R + r + 1) B). Where the batch does not divide, the last ones are masked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/stream.h"
#include "data/sources.h"

namespace lockstep {

// Of B sequences of T tokens, all [B, T] int32 in pinned memory. A masked sequence, and padding,
// has targets of -1 and inputs of 0. document_start is absent without Loader::document_mask().
struct Batch {
  ConstTensor inputs;
  ConstTensor targets;    // inputs shifted by one; -1 where masked, or where the loss mask is 0
  ConstTensor positions;  // within the document, of what the window shows of it
  ConstTensor document_start;  // index in the sequence of the document's first token in the window
  int buffer = 0;
};

class Loader {
 public:
  struct Config {
    std::vector<DataSource> sources;
    std::uint64_t seed = 0;  // of the order
    int sequence_length = 0;
    std::int64_t global_batch_sequences = 0;  // of a step, over all data ranks
    std::int64_t vocabulary = 0;              // of the model: a token from it on is refused; 0: any
    bool document_mask = false;               // false: a row is one document, if it is not packed
    RowKind rows = RowKind::automatic;
    std::int64_t shuffle_shards = 0;  // of windows: shards shuffled together; 0: all
    bool shuffle = true;              // false: rows in the order of the one dataset
    bool repeat = true;             // false: samples from samples() on are masked (one evaluation)
    std::int64_t most_samples = 0;  // samples() is at most this; 0: all rows
    ShardFiles* files = nullptr;    // opens the shards, and outlives this; null: as usual
  };

  // `sequences`: of one micro-batch of this rank. The buffers come from `pinned`, which may be
  // measuring: threads start, and memory is touched, only at the first batch(). Throws as Sources.
  // When it ends it waits for its threads, and these perhaps for a shard: files that fetch are
  // stopped before that (ShardFiles::stop, StopOnError).
  Loader(const Config& config, int sequences, int data_rank, int data_ranks, Arena& pinned);
  // The same of sources that are open: those of sources_of(config).
  Loader(const Config& config, Sources sources, int sequences, int data_rank, int data_ranks,
         Arena& pinned);
  static Sources::Config sources_of(const Config& config);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  const Sources& sources() const;
  const Dataset& dataset() const { return sources().dataset(0); }
  bool document_mask() const;  // whether batches have document_start: packed rows do

  // What is read of which sample, where a run goes on. While no batch is held.
  void go_on(DataHistory history);

  // Of a step of so many sequences, the micro-batches that each of the data ranks computes: what
  // they hold beyond the step's sequences is masked.
  static std::int64_t micro_steps_of(std::int64_t step_sequences, std::int64_t sequences,
                                     std::int64_t data_ranks);

  // What a loader takes from `pinned`.
  static std::int64_t pinned_bytes(int sequences, int sequence_length);

  std::int64_t samples() const;       // rows of all sources, or most_samples of them
  std::int64_t step_samples() const;  // of all ranks: the global batch
  int micro_steps() const;  // of a step: the global batch over data_ranks * sequences, rounded up

  // The micro-batch `micro_step` of the step whose first sample is `first_sample`. Waits for the
  // reading threads only when they are behind; that time is reported. Any position may be asked
  // for; going on where the last call was is what is read ahead. A DataError met in reading this
  // batch is thrown here, and a TransientError where no thread can be started to read. At most
  // kBuffers - 1 batches are held at a time.
  Batch batch(std::int64_t first_sample, int micro_step);

  // The buffer may be filled again once `copied` is done. The tensors are not to be used any more.
  void release(const Batch& batch, Event copied = {});

  double waited_seconds() const;  // in batch(), since construction

  // Where data are distant, they are fetched ahead, and closed behind: of each source, how many
  // shards a cache should have room for; more than there are stands for all.
  static std::int64_t shards_at_once(const Config& config);

  static constexpr std::int64_t kBuffers = 4;  // one in use, three read ahead
  static constexpr std::int64_t kThreads = 2;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

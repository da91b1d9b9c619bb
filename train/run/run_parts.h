// What a run's configuration makes of its parts: of each its own configuration, and its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/stream.h"
#include "data/loader.h"
#include "train/config.h"
#include "train/observe/meter.h"
#include "train/step/host_state.h"
#include "train/step/memory.h"
#include "train/step/training.h"

namespace lockstep {

int threads_of(const Config& config);  // what it says, or one for each processor allowed

// Who computes attention on `compute`: whom train.attention names; for auto cuDNN where it can,
// else the own kernels, and the log says why. cuDNN is prepared then. Throws ConfigError where it
// is named and cannot.
Config::Attention attention_of(const Config& config, Stream& compute);

// The same on a machine that is not here, where cuDNN is taken to be there.
Config::Attention planned_attention(const Config& config, Device device);

std::string in_words(Config::Attention settled);  // "cuDNN 9.19.0", "own kernels"

TrainingConfig training_config(const Config& config);

// Throws ConfigError where the device has no products for precision.fp8; warns where they are not
// worth it.
void require_fp8(const Config& c, const Stream& compute);

// What ranks compute in a step: each of those that read data as many whole micro-batches. What is
// beyond the step's sequences is masked: it takes as long as they do, and teaches nothing.
struct StepSplit {
  std::int64_t sequences = 0;  // of the step
  std::int64_t data_ranks = 1;
  std::int64_t micro_batches = 1;  // of each
  std::int64_t computed = 0;       // sequences, of all
};
StepSplit step_split(const Config& config);
// A sentence of it, with what would leave none; nothing where there is none.
std::string masked_in_words(const Config& config);

struct RunBytes {
  Arenas::Bytes training;
  std::int64_t batches = 0;     // that loaders read ahead, in the host's memory
  std::int64_t host_state = 0;  // likewise, see HostState
  HostState::Copies copies = HostState::Copies::none;
  Arenas::Bytes sum() const { return {training.device, training.pinned + batches + host_state}; }
};
// What a rank of a run takes, with copies for checkpoints where there is room for them and
// `may_copy`.
RunBytes run_bytes(const Config& config, const MemoryRoom& room, bool may_copy = true);
// Throws ConfigError, with the mildest change that would do, where there is no room for it.
void require_room(const Config& config, const RunBytes& bytes, const MemoryRoom& room);

// Of all ranks together: each element of weights (in fp32, where there are masters) and moments
// once.
std::int64_t checkpoint_bytes(const Config& config);

// Where blocks can stay gathered (layout.keep_gathered) and there is memory for more of them: how
// many, and what that spares.
struct Keepable {
  std::int64_t blocks = 0;                                     // 0: there is nothing to gain
  Arenas::Bytes bytes;                                         // that a rank takes then
  std::int64_t gathered_bytes = 0, gathered_bytes_before = 0;  // that it receives in a step
};
Keepable keepable_blocks(const Config& config, const MemoryRoom& room, HostState::Copies copies);

Loader::Config train_loader(const Config& config, ShardFiles& files);

// Held-out rows in the order of the dataset, each once, up to eval.tokens.
Loader::Config validation_loader(const Config& config, ShardFiles& files);

// With the peak of what all ranks run on: of a processor measured, of a GPU known; 0 where one is
// not in the table. All ranks at once.
Meter::Config meter_config(const Config& config, Stream& compute, World& world);
// The peak of processors alone, measured again. All ranks at once.
double measured_peak_flops(const Config& config, Stream& compute, World& world);
// Of a machine that is not here: of all ranks together, FLOP/s of products of a type.
Meter::Config meter_config(const Config& config, Device device,
                           FunctionRef<double(DType dtype)> peak_flops);

// Of a sample's prompt and continuation, in tokens, at most.
std::int64_t sample_length(const Config& config);

}  // namespace lockstep

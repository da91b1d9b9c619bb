// Resume: what a checkpoint says beside its tensors, and whether a configuration may go on from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/history.h"
#include "dist/comms.h"
#include "train/config.h"
#include "train/observe/statistics.h"

namespace lockstep {

struct NumericsRecord;

// Where a run is.
struct RunProgress {
  std::int64_t step = 0;          // done so far
  std::int64_t first_sample = 0;  // of the next step
  std::int64_t tokens_seen = 0;   // nominal, masked ones too
  std::int64_t good_step = -1;    // of the last checkpoint known to be good; -1: none. The loss of
                                  // step N tells of the weights before it, not of those it makes
  SpikeStatistics statistics;
};

// What a run computes its steps from, and with.
struct RunFacts {
  const Config& config;
  const Json& settings;                      // its values by key
  const DataHistory& history;                // of the data: what is read now is the last of it
  int threads;                               // that compute
  std::string device = "cpu";                // or the name of a GPU
  std::string attention = "own kernels";     // or "cuDNN 9.19.0"
  const NumericsRecord* numerics = nullptr;  // of a GPU
};

Json describe_run(const RunProgress& progress, const RunFacts& facts);
RunProgress progress_in(const Json& about);  // throws DataError where it does not say

// The checkpoint of step 0 that `lockstep checkpoint import` makes, while it is the only one that
// rank 0 sees: a shared file system may show another rank others. Every rank at once.
std::optional<std::filesystem::path> imported_weights(const std::filesystem::path& checkpoints,
                                                      World& world);

// What a run that goes on from a checkpoint reads of which sample, see continued. Throws
// ConfigError naming the key, the stored and the new value where the run would not be the one that
// was saved: another model, order of the data or kind of rows, or other data (unless
// `allow_dataset_change`). `carry`: see continued.
DataHistory check_resume(const Json& about, const RunFacts& facts, CarryOver carry,
                         bool allow_dataset_change);

// One line for each other key that differs, `key: old -> new`, and a warning where the machine
// computes in another order than the one that saved.
void log_changes(const Json& about, const RunFacts& facts);

// Refuses weights of another model, naming the first key that differs: initial standard deviations
// and, with rotary positions, the longest sequence make no other model. `where`: "DIR holds".
void check_same_model(const ModelConfig& found, const ModelConfig& expected,
                      const std::string& where);

}  // namespace lockstep

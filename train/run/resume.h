// Resume: the metadata of a checkpoint, and the check that a configuration may resume from it.
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
#include "train/run/amendments.h"

namespace lockstep {

struct NumericsRecord;

// The progress of a run.
struct RunProgress {
  std::int64_t step = 0;          // enqueued steps; at a checkpoint all are finished
  std::int64_t first_sample = 0;  // first sample of the next step
  std::int64_t tokens_seen = 0;   // nominal count, with masked tokens
  std::int64_t good_step = -1;    // step of the last checkpoint known to be good; -1: none. A
                                  // checkpoint counts as good after a later step had a finite loss
  SpikeStatistics statistics;
  Amendments amendments;
  std::string started_from;  // train.init_from of the first start
};

// The inputs of a run's steps: configuration, data, and numerics.
struct RunFacts {
  const Config& config;
  const Json& settings;                      // configuration values by key
  const DataHistory& history;                // of the data; the last stretch is the current one
  int threads;                               // compute threads
  std::string device = "cpu";                // or a GPU name
  std::string attention = "own kernels";     // or "cuDNN 9.19.0"
  const NumericsRecord* numerics = nullptr;  // only on a GPU
};

Json describe_run(const RunProgress& progress, const RunFacts& facts);
RunProgress progress_in(const Json& about);  // throws DataError if a member is missing

// The checkpoint of step 0 that `lockstep checkpoint import` writes, if rank 0 sees no other. Only
// rank 0 looks, because a shared file system may show other files to another rank. Collective.
std::optional<std::filesystem::path> imported_weights(const std::filesystem::path& checkpoints,
                                                      World& world);

// Returns the data history of a resumed run; see continued() for `carry`. Throws ConfigError, with
// the key and both values, if the configuration does not match the saved run: another model,
// another order of the data, another kind of rows, or other data (unless `allow_dataset_change`).
DataHistory check_resume(const Json& about, const RunFacts& facts, CarryOver carry,
                         bool allow_dataset_change);

// Checks what the configuration plans for a run that is at `progress.step`. Returns the amendment
// that continues the schedule of an extended run, if it needs one. Unless `extend`, throws
// ConfigError if
// - the run has ended, and train.steps is larger now;
// - train.steps is larger now, and the decay of the learning rate has begun;
// - the learning rate of the next step differs by more than 10%;
// - a key of [precision] differs.
std::optional<Amendment> check_extension(const Json& about, const RunProgress& progress,
                                         const Config& config, const Json& settings, bool extend);

// Throws ConfigError if train.init_from is set, and the run started from other weights.
void check_same_start(const std::string& started_from, const Config& config);

// Logs each other key that differs (`key: old -> new`). Warns if the device, the CPU level, the
// number of threads, the attention kernels or layout.reduce differ: results are then not
// bit-identical.
void log_changes(const Json& about, const RunFacts& facts);

// Throws ConfigError with the first key that differs if the models differ. Initial standard
// deviations may differ, and with rotary positions the longest sequence. `where`: "DIR holds".
void check_same_model(const ModelConfig& found, const ModelConfig& expected,
                      const std::string& where);

}  // namespace lockstep

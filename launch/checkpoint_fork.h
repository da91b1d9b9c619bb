// The verb `checkpoint fork`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/config.h"

namespace lockstep {

struct CheckpointForkOptions {
  std::string run;
  std::optional<std::int64_t> step;  // absent: the newest checkpoint
  std::string out;                   // directory of the new run
  std::vector<Setting> settings;     // that differ from those of the run
};

// Makes a run that continues from a checkpoint of another: its checkpoint, the metrics up to it,
// the tokenizer, and the configuration with other settings. The checkpoint takes no space if the
// file system has hard links.
int checkpoint_fork(const CheckpointForkOptions& options);

}  // namespace lockstep

// `lockstep train`.
#pragma once

#include <string>
#include <vector>

#include "launch/config.h"

namespace lockstep {

struct TrainVerbOptions {
  std::string config;             // a TOML file
  std::string run;                // directory of the run; empty: runs/NAME of the file's name
  std::string device = "cpu";     // "cpu" or "cuda"
  std::vector<Setting> settings;  // of --set
  bool allow_dataset_change = false;
};

int run_train(const TrainVerbOptions& options);

// The device that --device names. Throws UsageError on another name, ConfigError where this build
// has no such backend.
Device device_of(const std::string& name);

}  // namespace lockstep

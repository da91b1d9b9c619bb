// `lockstep train`.
#pragma once

#include <string>
#include <vector>

#include "launch/config.h"

namespace lockstep {

struct TrainVerbOptions {
  std::string config;             // a TOML file
  std::string run;                // directory of the run; empty: see run_train
  std::string device = "best";    // or "cpu", "cuda"
  std::vector<Setting> settings;  // of --set
  bool allow_dataset_change = false;
  bool allow_tensor_across_nodes = false;
  std::int64_t trace_steps = 0;
  std::int64_t verify_steps = 0;  // of --verify-resume
};

// Where no run is named, a run's saved config.toml goes on with that run, and another file starts
// (or goes on with) runs/ and the file's name.
int run_train(const TrainVerbOptions& options);

}  // namespace lockstep

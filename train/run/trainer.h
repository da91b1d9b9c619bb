// Trainer: a run from its first start, or from its newest checkpoint, to its last step.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "core/json.h"
#include "core/tensor.h"
#include "dist/comms.h"
#include "dist/topology/topology.h"
#include "train/config.h"
#include "train/run/step_observer.h"

namespace lockstep {

struct TrainOptions {
  Config config;
  std::string resolved_config;  // TOML: kept in the run directory
  Json settings;                // its values by key: {"train.steps": 1000, ...}; in checkpoints
  std::filesystem::path run;
  Device device;
  MakeStepObserver make_observer{};
  bool allow_dataset_change = false;
  std::string version{};          // of this program, as the ledger has it
  std::int64_t verify_steps = 0;  // so many are computed again before the run goes on
  std::int64_t trace_steps = 0;   // so many, from the first: each rank writes trace-rank-00000.json
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();  // the process
};

// The ranks of a run, as the mesh of config.layout numbers them.
struct RunRanks {
  World& world;
  const Topology* topology = nullptr;  // absent: they are all in one NVLink domain
};

// Returns the exit code: 0 when the last step is done; 130 after SIGINT, 75 after SIGTERM or
// SIGUSR1, in both cases with everything saved. Throws what ended the run otherwise.
int train(const TrainOptions& options, const RunRanks& ranks);

}  // namespace lockstep

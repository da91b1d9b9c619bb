// Trainer runs training from a first start, or from the newest checkpoint, to the last step.
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
  std::string resolved_config;  // TOML text for the run directory
  Json settings;                // values by key, for checkpoints: {"train.steps": 1000, ...}
  std::filesystem::path run;
  Device device;
  MakeStepObserver make_observer{};
  bool allow_dataset_change = false;
  std::string version{};          // of this program, for the ledger
  std::int64_t verify_steps = 0;  // number of steps to recompute before the run resumes
  std::int64_t trace_steps = 0;   // number of first steps that each rank traces to a file
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();  // process start
};

// The ranks of a run, numbered by the mesh of config.layout.
struct RunRanks {
  World& world;
  const Topology* topology = nullptr;  // absent: all ranks share one NVLink domain
};

// Trains. Returns the exit code: 0 after the last step, 130 after SIGINT, and 75 after SIGTERM or
// SIGUSR1; in all cases everything is saved. Otherwise it throws the error that ended the run.
int train(const TrainOptions& options, const RunRanks& ranks);

}  // namespace lockstep

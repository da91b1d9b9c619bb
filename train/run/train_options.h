// TrainOptions and RunRanks: what a run is started with.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/tensor.h"
#include "dist/comms.h"
#include "dist/topology/topology.h"
#include "train/config.h"
#include "train/run/amendments.h"
#include "train/run/step_observer.h"

namespace lockstep {

// A phase of a run that changes more than the learning rate. train() returns when the next phase
// begins.
struct RunPhase {
  std::int64_t from_step = 0;  // the steps after it are of the phase
  Config config;
};

struct TrainOptions {
  Config config;                 // of the current phase
  std::int64_t phase_begin = 0;  // the current phase has the steps after it
  std::vector<RunPhase> later_phases{};
  std::string resolved_config;  // TOML text for the run directory
  Json settings;                // values by key, for checkpoints: {"train.steps": 1000, ...}
  std::filesystem::path run;
  Device device;
  MakeStepObserver make_observer{};
  bool allow_dataset_change = false;
  bool extend = false;                      // accept another plan, see check_extension
  std::optional<std::int64_t> from_step{};  // checkpoint that the run goes back to
  std::optional<StepRange> skip_steps{};    // steps whose samples are not read
  // Number of the live request that asked for from_step and skip_steps; 0: flags.
  std::int64_t request = 0;
  Amendments changes{};      // the live changes that the configuration was resolved with
  std::string unfinished{};  // the live request that this call begins with; "": none
  bool continues = false;    // an earlier call in this process returned kTrainAgain
  // The phases of the run with live changes, from its first step on. Throws ConfigError if one is
  // invalid. May be called by another thread. Absent: the run takes no live requests.
  std::function<std::vector<RunPhase>(const Amendments& changes)> resolve{};
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

}  // namespace lockstep

// StepProgram: one optimizer step of a rank as its streams are given it: every operator and
// collective with what it moves and computes, and every wait, recorded by running the real
// training code on measuring streams. The planner prices it (launch/plan/step_time.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/op_log.h"
#include "dist/topology/topology.h"
#include "dist/volume.h"
#include "train/step/training.h"

namespace lockstep {

struct StepProgram {
  std::unique_ptr<OpLog> log;  // entries of streams()[0] are what computes
  // Where in entries() each recorded micro-batch ends. Of more than three the middle ones are
  // alike, and recorded once.
  std::vector<std::size_t> micro_ends;
  std::int64_t micro_batches = 1;  // of the step
  StepShape shape;
  std::map<std::string, GroupPlace, std::less<>> groups;  // by their communicators' names
  Arenas::Bytes peak;                                     // of a run, as measure_training says
  std::array<std::int64_t, kPurposes> peak_by_purpose{};  // of the device's
  std::array<std::int64_t, kPurposes> pinned_by_purpose{};
};

// Of rank `rank` of config.mesh, on `device` (which need not be here) with `threads` of a CPU.
// topology: as for make_comms. Throws ConfigError where no such layout can be.
StepProgram record_step(const TrainingConfig& config, Device device, int threads, int rank = 0,
                        const Topology* topology = nullptr);

}  // namespace lockstep

// StepProgram: one optimizer step of a rank as a sequence of calls on its streams: every operator
// and collective with its bytes and FLOPs, and every wait. It is recorded by running the training
// code on measuring streams. The planner estimates its time (launch/plan/step_time.h).
#pragma once

#include <array>
#include <cstdint>
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
  std::unique_ptr<OpLog> log;  // streams()[0] is the compute stream
  // The end of each recorded micro-batch in entries(). Of more than three micro-batches, the middle
  // ones are equal and recorded once.
  std::vector<std::size_t> micro_ends;
  std::int64_t micro_batches = 1;  // of the step
  StepShape shape;
  std::array<GroupPlace, kGroups> groups{};
  Arenas::Bytes peak;                                     // of a run, see measure_training
  std::array<std::int64_t, kPurposes> peak_by_purpose{};  // of device memory
  std::array<std::int64_t, kPurposes> pinned_by_purpose{};

  GroupPlace place_of(Group group) const {
    return group == Group::other ? GroupPlace{} : groups[static_cast<std::size_t>(group)];
  }
};

// Records a step of rank `rank` of config.mesh on `device` (which need not be present) with
// `threads` CPU threads. `topology` is passed to make_comms. Throws ConfigError for an impossible
// layout.
StepProgram record_step(const TrainingConfig& config, Device device, int threads, int rank = 0,
                        const DomainMap* topology = nullptr);

}  // namespace lockstep

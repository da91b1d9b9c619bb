// Estimate: what a run would take on a Cluster, before it is started there: a step's time by
// component, memory by purpose, checkpoints. The step is recorded from the code that trains
// (launch/plan/step_program.h) and priced by launch/plan/cluster_step.h; docs/planning.md says how.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "dist/topology/topology_placement.h"
#include "launch/plan/cluster.h"
#include "launch/plan/step_program.h"
#include "launch/plan/step_time.h"
#include "train/config.h"
#include "train/observe/meter.h"
#include "train/observe/plan_file.h"
#include "train/run/memory_budget.h"

namespace lockstep {

// A checkpoint. A rank copies what it saves beside the next step, whose update waits for it, and
// writes the copy beside the steps after; without a copy the update waits until it is written.
struct SaveTimes {
  std::int64_t bytes = 0;        // of all ranks
  bool copies = false;           // whether there is room for a copy
  int nodes = 1;                 // that write it
  double copied_per_second = 0;  // bytes, of a rank
  double copy_seconds = 0;
  double write_seconds = 0;   // of the node with most ranks; 0: it is not known how fast it writes
  double hidden_seconds = 0;  // of a step, until its update
  std::int64_t interval_steps =
      0;                        // between two; of the whole run, where it saves at its end alone
  double interval_seconds = 0;  // that these take
  double update_stall_seconds = 0;  // for which an update waits for a copy, or the write
  double next_stall_seconds = 0;    // for which a save waits until the one before is written

  double stall_seconds() const { return update_stall_seconds + next_stall_seconds; }  // C
  // Of a save `interval` seconds of steps behind the one before. Without copies the update waits.
  double next_stall_after(double interval) const {
    return copies ? std::max(write_seconds - interval, 0.0) : 0;
  }
  // From the begin of a save until its checkpoint is whole.
  double whole_after_seconds() const { return (copies ? copy_seconds : 0) + write_seconds; }
};

struct Estimate {
  StepTime time;  // a mean step: of data and checkpoints, what compute waits for them
  double tokens_per_second = 0;  // of all ranks
  Utilization mfu;
  Meter::Config meter;                                      // what MFU is counted by
  RunBytes bytes;                                           // a rank, as `train` announces them
  std::array<std::int64_t, kPurposes> by_purpose{};         // of bytes.training.device
  std::array<std::int64_t, kPurposes> pinned_by_purpose{};  // of bytes.training.pinned
  std::int64_t constant_bytes = 0;                          // of a rank, beside them
  bool constants_measured = false;                          // else they are assumed
  MemoryRoom room;                                          // that ranks have, constants left out
  std::int64_t capacity_bytes = 0;                          // of a rank's device, all of it
  SaveTimes save;
  int ranks = 1;
  // Of the step, and how many of them were measured on the cluster: operators by name, collectives
  // of several ranks by name and group.
  struct Calls {
    int kinds = 0, measured = 0;
  };
  Calls operators, collectives;

  double tokens_per_second_of(const StepTime& step) const;
  Utilization mfu_of(const StepTime& step) const;

  bool fits() const { return room.has(bytes.sum()); }
  std::int64_t needed_bytes() const;  // of a rank's device, constants too
  // Of a rank; 0: there is enough. Of its device's memory, and, where that is a GPU, of its part of
  // the host's.
  std::int64_t missing_bytes() const;
  std::int64_t missing_host_bytes() const;
};

// The configuration as such a cluster runs it: what is left open there settled, threads too.
Config planned_on(const Cluster& cluster, Config config);

MemoryRoom room_on(const Cluster& cluster, int ranks);

// Of rank 0 of config.layout; others have the same but for padding. Throws ConfigError where no
// such layout can be on the cluster.
Estimate estimate(const Config& config, const Cluster& cluster,
                  TensorAcross across = TensorAcross::refused);

// The same where a step takes as long as `step`, by what earlier runs took
// (launch/plan/residuals.h).
Estimate corrected(const Estimate& estimate, const Config& config, const Cluster& cluster,
                   const StepTime& step);

// Of a rank in its host's memory, by what it is for: bytes.sum().pinned in all. What is nothing is
// not there.
std::vector<PlanFile::Memory> host_memory(const Estimate& estimate);

// corrected: by what earlier runs took (launch/plan/residuals.h), where there are any.
PlanFile plan_file_of(const Estimate& estimate, const Cluster& cluster,
                      const std::optional<StepTime>& corrected = std::nullopt);

}  // namespace lockstep

// Estimate predicts a run on a Cluster: step time by component, memory by purpose, checkpoints. The
// step is recorded from the training code (launch/plan/step_program.h), and
// launch/plan/cluster_step.h estimates its time, as docs/planning.md explains.
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

// Times of a checkpoint. A rank copies its state during the next step, whose update waits for the
// copy, and writes the copy during later steps. Without a copy the update waits for the write.
struct SaveTimes {
  std::int64_t bytes = 0;        // of all ranks
  bool copies = false;           // memory suffices for a copy
  int nodes = 1;                 // nodes that write
  double copied_per_second = 0;  // bytes per second of a rank
  double copy_seconds = 0;
  double write_seconds = 0;   // of the node with most ranks; 0: write rate unknown
  double hidden_seconds = 0;  // time from the start of a step to its update
  std::int64_t interval_steps =
      0;                        // steps between saves; the whole run if it saves only at the end
  double interval_seconds = 0;  // time of these steps
  double update_stall_seconds = 0;  // time that an update waits for the copy, or for the write
  double next_stall_seconds = 0;    // time that a save waits until the previous one is written

  double stall_seconds() const { return update_stall_seconds + next_stall_seconds; }  // C
  // Wait of a save that starts `interval` seconds of steps after the previous one. Without copies
  // the update waits instead.
  double next_stall_after(double interval) const {
    return copies ? std::max(write_seconds - interval, 0.0) : 0;
  }
  // Time from the start of a save until its checkpoint is complete.
  double whole_after_seconds() const { return (copies ? copy_seconds : 0) + write_seconds; }
};

struct Estimate {
  StepTime time;                 // mean step; data and checkpoint are the waits of compute for them
  double tokens_per_second = 0;  // of all ranks
  Utilization mfu;
  Meter::Config meter;                                      // the FLOPs and peaks behind MFU
  RunBytes bytes;                                           // of a rank, as `train` reports them
  std::array<std::int64_t, kPurposes> by_purpose{};         // parts of bytes.training.device
  std::array<std::int64_t, kPurposes> pinned_by_purpose{};  // parts of bytes.training.pinned
  std::int64_t constant_bytes = 0;                          // of a rank, in addition
  bool constants_measured = false;                          // otherwise assumed
  MemoryRoom room;                                          // memory of ranks, without constants
  std::int64_t capacity_bytes = 0;                          // memory of the device of a rank
  SaveTimes save;
  int ranks = 1;
  // Kinds of calls in the step, and the number of them measured on the cluster. Operators differ by
  // name, collectives of several ranks by name and group.
  struct Calls {
    int kinds = 0, measured = 0;
  };
  Calls operators, collectives;

  double tokens_per_second_of(const StepTime& step) const;
  Utilization mfu_of(const StepTime& step) const;

  bool fits() const { return room.has(bytes.sum()); }
  std::int64_t needed_bytes() const;  // device memory of a rank, with constants
  // Missing memory of a rank; 0: it fits. On the device and, for a GPU, in its share of the host.
  std::int64_t missing_bytes() const;
  std::int64_t missing_host_bytes() const;
};

// The configuration as the cluster runs it, with automatic values and threads resolved.
Config planned_on(const Cluster& cluster, const Config& written);

MemoryRoom room_on(const Cluster& cluster, int ranks);

// Estimates rank 0 of config.layout; other ranks differ only in padding. Throws ConfigError if the
// layout is impossible on the cluster.
Estimate estimate(const Config& config, const Cluster& cluster,
                  TensorAcross across = TensorAcross::refused);

// The estimate with the step time `step`, which earlier runs corrected (launch/plan/plan_errors.h).
Estimate corrected(const Estimate& estimate, const Config& config, const Cluster& cluster,
                   const StepTime& step);

// Host memory of a rank by purpose, bytes.sum().pinned in total, without empty entries.
std::vector<PlanFile::Memory> host_memory(const Estimate& estimate);

// `corrected`: step time corrected by earlier runs (launch/plan/plan_errors.h), if there are any.
PlanFile plan_file_of(const Estimate& estimate, const Cluster& cluster,
                      const std::optional<StepTime>& corrected = std::nullopt);

}  // namespace lockstep

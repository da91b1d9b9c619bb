// StepCalls explains the planned time of a step: the operators and collectives of a recorded step
// by name, with the time that each takes alone on a Cluster. launch/plan/step_time.h simulates the
// concurrency of streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/component.h"
#include "dist/topology/topology_placement.h"
#include "launch/plan/cluster.h"
#include "launch/plan/step_program.h"
#include "train/config.h"

namespace lockstep {

// Calls of one component.
struct StepCalls {
  struct Row {  // sums over all calls of one name in a step of a rank
    std::string name;
    std::int64_t calls = 0;
    std::int64_t measured_calls = 0;  // calls measured on the cluster; the others are estimated
    double flops = 0;
    double bytes = 0;    // see Op
    double seconds = 0;  // of each call alone, without concurrent calls or waits for ranks
  };

  Component component = Component::other;
  std::vector<Row> rows;           // longest first
  std::optional<Formula> longest;  // the longest estimate of a call; none if all are 0

  double seconds() const;
};

// Lists calls by component. Components without calls and collectives of one rank, which do nothing,
// are omitted. Middle micro-batches count as often as the step has them.
std::vector<StepCalls> step_calls(const Cluster& cluster, const StepProgram& program);
// Lists the calls of the step whose time estimate() computes. Throws ConfigError for an impossible
// layout.
std::vector<StepCalls> step_calls(const Cluster& cluster, const Config& config,
                                  TensorAcross across = TensorAcross::refused);

}  // namespace lockstep

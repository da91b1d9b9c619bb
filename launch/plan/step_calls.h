// StepCalls: where the planned time of a step comes from: the operators and collectives of a
// recorded step, by what they are called, with the seconds that each takes alone on a Cluster. What
// streams then do beside each other is launch/plan/step_time.h.
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
    std::int64_t measured_calls = 0;  // of those, on the cluster; the others have prices
    double flops = 0;
    double bytes = 0;    // as an Op has them
    double seconds = 0;  // each alone: nothing beside it, and no rank that it waits for
  };

  Component component = Component::other;
  std::vector<Row> rows;           // those of most seconds first
  std::optional<Formula> longest;  // the price of the call with the longest one, unless all are 0

  double seconds() const;
};

// In the order of components; those without calls are not there, nor are collectives of one rank,
// which are nothing. Middle micro-batches count as often as the step has them.
std::vector<StepCalls> step_calls(const Cluster& cluster, const StepProgram& program);
// Of the step that estimate() prices. Throws ConfigError where no such layout can be there.
std::vector<StepCalls> step_calls(const Cluster& cluster, const Config& config,
                                  TensorAcross across = TensorAcross::refused);

}  // namespace lockstep

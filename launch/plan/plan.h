// Plan: the result of `lockstep plan`, and its two forms: tables, and one JSON object.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "launch/plan/cluster.h"
#include "launch/plan/estimate.h"
#include "launch/plan/layout_search.h"
#include "launch/plan/run_costs.h"
#include "launch/plan/step_calls.h"

namespace lockstep {

// A phase of a run: its steps, and what one of them takes.
struct PlannedPhase {
  std::int64_t first_step = 0, last_step = 0;
  Config config;
  Estimate estimate;

  double seconds() const {  // of its steps, without checkpoints
    return static_cast<double>(last_step - first_step + 1) *
           (estimate.time.total() - estimate.time[Component::checkpoint]);
  }
};

struct Plan {
  Config config;
  Cluster cluster;
  Estimate estimate;
  RunCosts costs;
  // Estimate corrected by earlier runs, if there are any.
  std::optional<Estimate> corrected;
  RunCosts corrected_costs;
  std::vector<PlannedPhase> phases;  // all of a run with several phases; `config` is of the first
  std::optional<LayoutSearch> search;
  std::vector<StepCalls> calls;    // with --explain
  std::vector<Formula> formulas;   // with --explain
  std::vector<std::string> notes;  // assumptions and limits of the figures
};

std::string plan_text(const Plan& plan);
// Lists the layouts that miss the least memory, and the number of nodes that would suffice. Each
// line starts with a line break.
std::string nothing_fits(const LayoutSearch& search);
Json plan_json(const Plan& plan);

}  // namespace lockstep

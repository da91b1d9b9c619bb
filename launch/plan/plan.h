// Plan: all that `lockstep plan` says of a run, and its two forms: tables, and one JSON object.
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

struct Plan {
  Config config;
  Cluster cluster;
  Estimate estimate;
  RunCosts costs;
  // By what earlier runs took, where there are any.
  std::optional<Estimate> corrected;
  RunCosts corrected_costs;
  std::optional<LayoutSearch> search;
  std::vector<StepCalls> calls;    // where they are asked for
  std::vector<Formula> formulas;   // likewise
  std::vector<std::string> notes;  // what a reader should know of these figures
};

std::string plan_text(const Plan& plan);
// What lacks least, a line each, and how many nodes would do: each line begins with a line break.
std::string nothing_fits(const LayoutSearch& search);
Json plan_json(const Plan& plan);

}  // namespace lockstep

// PlanMonitor compares a run with its plan. It plans the run at its start. Periodically it logs how
// far steps are from the plan by component, with likely causes, and finds the ranks that others
// wait for (stragglers). It records the plan errors for the next plan.
#pragma once

#include "dist/topology/topology_placement.h"
#include "launch/plan/cluster.h"
#include "launch/plan/plan_errors.h"
#include "launch/plan/step_comparison.h"
#include "train/observe/plan_file.h"
#include "train/observe/stragglers.h"
#include "train/run/run_context.h"

namespace lockstep {

class PlanMonitor : public StepObserver {
 public:
  // `cluster`: from plan.cluster, on rank 0. `across`: the rule by which ranks were placed.
  PlanMonitor(RunHost& host, const RunConfig& config, RunCompute& compute,
              std::optional<Cluster> cluster, TensorAcross across)
      : host_(host),
        config_(config),
        compute_(compute),
        cluster_(std::move(cluster)),
        across_(across) {}

  // Plans, writes RUN/plan.json, and logs the plan or the reason why there is none.
  void open() override;
  // Adds the planned MFU and the slowest rank.
  void fill_in(StepReport& report) override;
  // Adds the slowest rank to the last step.
  void observe(StepReport& report, bool is_comparison) override;
  void meter_changed() override;  // updates the planned MFU, in RUN/plan.json too
  void end() override;            // records the plan errors

 private:
  void plan();
  std::string key() const { return plan_error_key(host_.options.config); }
  void hear_ranks(StepReport& report);
  void show_table(const StepReport& report);
  void say_who_is_slow(const SlowRanks& slow);

  RunHost& host_;
  const RunConfig& config_;
  RunCompute& compute_;
  std::optional<Cluster> cluster_;
  TensorAcross across_;
  std::optional<PlanFile> plan_;
  bool is_by_meter_ = false;  // the MFU of the plan is computed by the meter of the run
  MeanStep since_table_, all_;
  std::int64_t first_step_ = 0;  // first step since the last table; 0: none yet
  std::vector<std::string> slowed_by_;
  std::string unlike_plan_;  // difference between this run and the planned one; empty: none
  Stragglers stragglers_;
  bool ranks_said_ = false;  // rank times were exchanged but not yet read
};

}  // namespace lockstep

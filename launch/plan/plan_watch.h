// PlanWatch: a run beside its plan. It plans the run at its start, shows now and then how far steps
// are from that, component by component, with what is likely where one is off; finds the ranks that
// the others wait for; and keeps how far the plan was off for the next one.
#pragma once

#include "dist/topology/topology_placement.h"
#include "launch/plan/cluster.h"
#include "launch/plan/residuals.h"
#include "launch/plan/step_comparison.h"
#include "train/observe/plan_file.h"
#include "train/observe/stragglers.h"
#include "train/run/run_context.h"

namespace lockstep {

class PlanWatch : public StepObserver {
 public:
  // `cluster`: of plan.cluster; on rank 0. `across`: as ranks were placed.
  PlanWatch(RunHost& host, const RunConfig& config, RunCompute& compute,
            std::optional<Cluster> cluster, TensorAcross across)
      : host_(host),
        config_(config),
        compute_(compute),
        cluster_(std::move(cluster)),
        across_(across) {}

  // Plans, writes RUN/plan.json and says what is planned, or why nothing is.
  void open() override;
  // What the plan says of it, and which rank was the slowest.
  void fill_in(StepReport& report) override;
  void observe(StepReport& report) override;  // of the last step, fills in the slowest rank
  void meter_changed() override;              // the planned MFU follows it, in RUN/plan.json too
  void end() override;                        // keeps what the plan was off by

 private:
  void plan();
  std::string key() const { return residual_key(host_.options.config); }
  void hear_ranks(StepReport& report);
  void show_table(const StepReport& report);
  void say_who_is_slow(const SlowRanks& slow);

  RunHost& host_;
  const RunConfig& config_;
  RunCompute& compute_;
  std::optional<Cluster> cluster_;
  TensorAcross across_;
  std::optional<PlanFile> plan_;
  bool is_by_meter_ = false;  // its MFU
  MeanStep since_table_, all_;
  std::int64_t first_step_ = 0;  // of those since the table; 0: none came yet
  std::vector<std::string> slowed_by_;
  std::string unlike_plan_;  // what this run has that the plan is not of; empty: nothing
  Stragglers stragglers_;
  bool ranks_said_ = false;  // and were not read yet
};

}  // namespace lockstep

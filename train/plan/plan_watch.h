// PlanWatch: a run beside its plan. It plans the run at its start, shows now and then how far steps
// are from that, component by component, with what is likely where one is off; finds the ranks that
// the others wait for; and keeps how far the plan was off for the next one.
#pragma once

#include "train/plan/plan_file.h"
#include "train/plan/residuals.h"
#include "train/plan/step_comparison.h"
#include "train/run.h"
#include "train/stragglers.h"

namespace lockstep {

class PlanWatch {
 public:
  explicit PlanWatch(Run& run) : run_(run) {}  // which outlives it

  // Rank 0, when the first step begins: plans, writes RUN/plan.json and says what is planned, or
  // why nothing is.
  void open();
  // Every rank, behind each step, before it is logged: fills in what the plan says of it, and which
  // rank was the slowest.
  void fill_in(StepReport& report);
  void meter_changed();  // another peak: the planned MFU follows it, in RUN/plan.json too
  // Likewise, behind the step's line. Of the last one it fills in the slowest rank.
  void observe(StepReport& report);
  void end();  // rank 0: keeps what the plan was off by

 private:
  void plan();
  std::string key() const { return residual_key(run_.options.config); }
  void hear_ranks(StepReport& report);
  void show_table(const StepReport& report);
  void say_who_is_slow(const SlowRanks& slow);

  Run& run_;
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

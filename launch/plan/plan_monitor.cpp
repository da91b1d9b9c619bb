#include "launch/plan/plan_monitor.h"

#include <algorithm>
#include <utility>

#include "core/gpu.h"
#include "core/log.h"
#include "core/units.h"
#include "dist/job/agent_socket.h"
#include "dist/job/rank_consistency.h"
#include "launch/plan/plan_errors.h"
#include "launch/plan/run_plan.h"

namespace lockstep {
namespace {

constexpr std::int64_t kFewestSteps = 10;  // timed steps needed to record plan errors
// Stragglers of which an agent learns: a restart without them costs less than they do.
constexpr std::int64_t kReportsToAgent = 10;
constexpr double kRatioToAgent = 1.5;

std::filesystem::path residuals_of(const Config::Plan& config) {
  return config.cluster.empty() ? std::filesystem::path() : PlanErrors::file_beside(config.cluster);
}

}  // namespace

void PlanMonitor::open() {
  try {
    plan();
  } catch (const Error& error) {  // training continues without a plan
    log_warning("this run has no plan: ", error.what());
  }
  if (!plan_) return;
  const auto step = plan_->step.without_checkpoints();
  const auto& band = plan_->band;
  log_info("planned for ", plan_->cluster, ": ", human_seconds(step.seconds), " per step, ",
           human_count(step.tokens_per_second), " tok/s",
           band.is_known()
               ? str("; 80 % of similar runs take ", human_seconds(band.low * step.seconds), " to ",
                     human_seconds(band.high * step.seconds))
               : "",
           plan_->corrected ? str("; corrected by earlier runs: ",
                                  human_seconds(plan_->corrected->without_checkpoints().seconds))
                            : "");
}

void PlanMonitor::plan() {
  const bool on_gpu = host_.stream.is_cuda();
  auto cluster = cluster_;
  if (!cluster && on_gpu)
    cluster = cluster_here(gpu::properties(host_.stream.device().index).name, host_.world.size(),
                           static_cast<int>(host_.hosts().size()));
  if (!cluster) {
    plan_ = plan_that_is_there(host_.directory.plan(), key());
    if (!plan_)
      log_info("no plan: plan.cluster is not set, and ",
               on_gpu ? "this GPU is unknown" : "the rates of CPUs are unknown without it",
               "; run `lockstep preflight` to measure and write a cluster file");
    return;
  }
  std::error_code ignored;
  std::filesystem::remove(host_.directory.plan(), ignored);  // the plan of an earlier start
  if ((cluster->device == Device::Kind::cuda) != on_gpu)
    throw ConfigError(
        str("plan.cluster: ", config_.plan.cluster, " describes ",
            on_gpu ? "CPUs, but this run uses GPUs" : "GPUs, but this run uses CPUs"));
  if (const int threads = host_.stream.threads(); is_of_other_threads(*cluster, threads)) {
    unlike_plan_ = str("planned for ", cluster->threads,
                       cluster->threads == 1 ? " thread" : " threads", " per rank, not ", threads);
    log_warning("plan.cluster: ", config_.plan.cluster, " was measured with ", cluster->threads,
                cluster->threads == 1 ? " thread" : " threads", " per rank, but this run uses ",
                threads,
                ", so plan errors are not recorded; set train.threads = ", cluster->threads,
                ", or measure again with lockstep preflight --threads ", threads);
  }
  // The plan assumes the configured attention: a fallback of the run shows as a difference.
  Config config = config_;
  config.train.attention = host_.options.config.train.attention;
  plan_ = planned_run(config, *cluster, compute_.meter.config(),
                      unlike_plan_.empty() ? residuals_of(config.plan) : "", key(), across_);
  is_by_meter_ = true;
  write_plan_file(host_.directory.plan(), *plan_);
}

void PlanMonitor::meter_changed() {
  if (!is_by_meter_) return;
  count_mfu(*plan_, compute_.meter.config());
  host_.log.attempt([&] {
    host_.directory.check();
    write_plan_file(host_.directory.plan(), *plan_);
  });
}

void PlanMonitor::fill_in(StepReport& report) {
  if (plan_) {
    const double mfu = plan_->step.without_checkpoints().mfu;
    report.planned_utilization = mfu;
    if (plan_->band.is_known()) {
      report.least_planned_utilization = mfu / plan_->band.high;
      report.most_planned_utilization = mfu / plan_->band.low;
    }
  }
  hear_ranks(report);
}

void PlanMonitor::hear_ranks(StepReport& report) {
  if (!std::exchange(ranks_said_, false) || !host_.is_first()) return;
  const auto seconds = compute_.training.rank_times().read();
  report.slowest = slowest_of(seconds);
  if (const auto slow = stragglers_.observe(seconds)) say_who_is_slow(*slow);
}

void PlanMonitor::observe(StepReport& report, bool is_comparison) {
  since_table_.add(report);
  all_.add(report);
  if (first_step_ == 0) first_step_ = report.step;
  if (report.gpu) slowed_by_ = report.gpu->slowed_by;
  if (!is_comparison) return;
  if (host_.world.size() > 1) {  // read after the next step, when the device is done
    compute_.training.rank_times().enqueue(host_.stream, since_table_.own_seconds());
    ranks_said_ = true;
    if (report.step == config_.train.steps) hear_ranks(report);  // no step follows
  }
  if (plan_ && since_table_.timed_steps() > 0) show_table(report);
  since_table_.clear();
  first_step_ = 0;
}

void PlanMonitor::show_table(const StepReport& report) {
  const StepTime planned = time_of(plan_->step), measured = since_table_.time();
  const auto timed = since_table_.timed_steps();
  const auto text = str("steps ", first_step_, " to ", report.step, " (", timed,
                        " timed), compared with the plan for ", plan_->cluster, ":\n",
                        comparison_table(planned, measured));
  const RunsOn where{.device = host_.stream.device().kind,
                     .hosts = static_cast<int>(host_.hosts().size()),
                     .slowed_by = slowed_by_,
                     .unlike_plan = unlike_plan_};
  log_info(text, in_words(deviations(planned, measured), where));
}

void PlanMonitor::say_who_is_slow(const SlowRanks& slow) {
  const auto where = host_.topology == nullptr
                         ? std::string()
                         : str(" on ", hosts_in_words(*host_.topology, slow.ranks));
  if (host_.is_first() && host_.topology != nullptr && slow.reports >= kReportsToAgent &&
      slow.ratio() >= kRatioToAgent) {
    RankReport report;
    for (const int rank : slow.ranks)
      if (const auto& host = host_.topology->places[static_cast<std::size_t>(rank)].host;
          std::ranges::find(report.slow, host) == report.slow.end())
        report.slow.push_back(host);
    report_to_agent(report);
  }
  const auto needs = str(human_seconds(slow.seconds), " per step ");
  log_warning(rank_list(slow.ranks), where,
              slow.ranks.size() == 1 ? str(" needs ", needs, "itself, ")
                                     : str(" need up to ", needs, "themselves, "),
              trimmed(three_digits(slow.ratio())), " times the median of ", host_.world.size(),
              " ranks, in the last ", slow.reports,
              " comparisons; all other ranks wait (straggler). Possible causes: CPU cores busy "
              "with other programs, throttled clocks, late data");
}

void PlanMonitor::end() {
  const auto file = residuals_of(config_.plan);
  if (!plan_ || !unlike_plan_.empty() || file.empty() || all_.timed_steps() < kFewestSteps) return;
  host_.log.attempt([&] {
    auto plan_errors = PlanErrors::read_or_set_aside(file);
    plan_errors.add({.key = key(), .planned = time_of(plan_->step), .measured = all_.time()});
    plan_errors.write(file);
    log_info("wrote plan errors to ", file.string());
  });
}

}  // namespace lockstep

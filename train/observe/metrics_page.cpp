#include "train/observe/metrics_page.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "core/wall_clock.h"
#include "train/observe/metrics_reader.h"
#include "train/observe/statistics.h"

namespace lockstep {
namespace {

// Replaces the text atomically for readers. It does not sync, because the file is written again
// soon and an fsync every second costs too much.
void replace_text(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = str(path.string(), ".tmp-", getpid());
  {
    RangeWriter writer(temporary, path, RangeWriter::Way::cached, RangeWriter::Start::empty);
    writer.write(std::as_bytes(std::span(text)));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    fail_io(path, str("cannot rename ", temporary.filename().string(), " to it"), errno);
}

std::optional<StepMetrics> last_step(const std::filesystem::path& metrics) {
  constexpr std::int64_t kMostBytes = 64 << 10;
  const auto line = last_line(metrics, kMostBytes);
  return line ? std::optional(parse_metrics_line(*line)) : std::nullopt;
}

void assign(double& to, double value) {
  to = value;
}
void assign(std::int64_t& to, double value) {
  to = std::llround(known(value));
}
void assign(bool& to, double value) {
  to = known(value) != 0;
}

StepReport report_of(const StepMetrics& metrics) {
  StepReport r;
  r.step = metrics.step;
#define LOCKSTEP_ASSIGN(member, value, tag, gauge, help) assign(value, metrics[Metric::member]);
  LOCKSTEP_STEP_METRICS(LOCKSTEP_ASSIGN)
#undef LOCKSTEP_ASSIGN
  r.eta_seconds = StepReport::kUnknown;  // the process has ended
  return r;
}

}  // namespace

MetricsPage::MetricsPage(const RunDirectory& run, const Config& config)
    : run_(run),
      file_(config.log.prometheus_file.empty() ? "" : run.path() / config.log.prometheus_file),
      plan_(run.plan()),
      is_in_run_(std::filesystem::path(config.log.prometheus_file).is_relative()) {
  exposed_.run = run_name(run.path());
  exposed_.steps = config.train.steps;
  exposed_.last_step_time_seconds = seconds_since_1970();
  exposed_.checkpoint_interval_steps = config.checkpoint.every_steps;
  if (!config.checkpoint.local_directory.empty()) exposed_.copies[kCopyToRun];
  if (!config.checkpoint.archive_directory.empty()) exposed_.copies[kCopyToArchive];
  if (!file_.empty() || config.log.metrics_port != 0) recall(run);
  if (config.log.metrics_port == 0) return;
  try {
    server_.emplace(config.log.metrics_address,
                    static_cast<std::uint16_t>(config.log.metrics_port));
    server_->set(prometheus_text(exposed_));
    log_info("metrics for Prometheus: http://", server_->address(), "/metrics");
  } catch (const TransientError& error) {
    log_warning(error.what(), "; training continues without this port");
  }
}

// Ignores damaged files. The code that resumes from them reports the damage.
void MetricsPage::recall(const RunDirectory& run) {
  try {
    if (const auto last = last_step(run.metrics())) {
      exposed_.step = last->step;
      exposed_.report = report_of(*last);
    }
  } catch (const Error&) {
  }
  try {
    if (const auto lines = read_ledger(run.ledger()); !lines.empty())
      exposed_.goodput = goodput_of(lines);
  } catch (const Error&) {
  }
  try {
    if (path_exists(run.saved_step())) recall_save(run.saved_step());
  } catch (const Error&) {
  }
}

void MetricsPage::recall_save(const std::filesystem::path& saved_step) {
  const auto text = read_text(saved_step, 32);
  std::int64_t step = -1;
  std::from_chars(text.data(), text.data() + text.size(), step);
  if (step < 0) return;
  std::error_code unknown;
  const auto written =
      std::chrono::file_clock::to_sys(std::filesystem::last_write_time(saved_step, unknown));
  exposed_.saves.step = step;
  if (!unknown)
    exposed_.saves.time_seconds = std::chrono::duration<double>(written.time_since_epoch()).count();
}

void MetricsPage::begin(std::int64_t step, const std::optional<Goodput>& goodput) {
  exposed_.step = step;
  if (exposed_.report && exposed_.report->step != step) exposed_.report.reset();
  if (goodput) exposed_.goodput = goodput;
  if (exposed_.saves.step != step) {  // a resume from an older checkpoint, or a run without one
    exposed_.saves = {};
    if (step > 0) exposed_.saves.step = step;
  }
  publish();
}

void MetricsPage::count_save(std::int64_t step, bool failed, const std::string& copied_to) {
  auto& counts = copied_to.empty() ? exposed_.saves : exposed_.copies[copied_to];
  if (failed) {
    ++counts.failures;
    return;
  }
  counts.step = step;
  counts.time_seconds = seconds_since_1970();
}

void MetricsPage::count(const StepReport& r) {
  exposed_.report = r;
  if (exposed_.planned && !std::isnan(r.planned_utilization))  // with the peak of this step
    exposed_.planned->mfu = r.planned_utilization;
  exposed_.step = r.step;
  exposed_.last_step_time_seconds = seconds_since_1970();
  exposed_.tokens += std::llround(known(r.tokens_per_second * r.step_seconds));
  exposed_.skipped_steps += r.skipped ? 1 : 0;
  exposed_.nonfinite_steps += r.skipped && r.valid_tokens > 0 ? 1 : 0;
  exposed_.loss_spikes += r.loss_z > kSpikeDeviations ? 1 : 0;
  exposed_.data_wait_seconds += known(r.data_wait_seconds);
  exposed_.checkpoint_seconds += known(r.time[Component::checkpoint]);
  exposed_.evaluation_seconds += known(r.evaluation_seconds);
  if (!std::isnan(r.time[Component::other])) exposed_.time = r.time;
  if (r.slowest) exposed_.slowest = r.slowest;
  if (r.validation_loss) exposed_.validation_loss = r.validation_loss;
  if (!r.gpu) return;
  exposed_.gpu = r.gpu;
  exposed_.energy_joules += known(r.gpu->energy_joules);
}

bool MetricsPage::show(const StepReport& report, const std::optional<Goodput>& goodput) {
  if (file_.empty() && !server_) return false;
  count(report);
  const auto now = Clock::now();
  if (now < next_) return false;
  next_ = now + std::chrono::seconds(1);
  exposed_.goodput = goodput;
  if (!std::exchange(knows_plan_, true))
    if (auto plan = read_plan_file(plan_)) exposed_.planned = plan->step.without_checkpoints();
  publish();
  return true;
}

void MetricsPage::end(const std::optional<Goodput>& goodput, double checkpoint_seconds) {
  exposed_.checkpoint_seconds += checkpoint_seconds;
  if (goodput) exposed_.goodput = goodput;
  exposed_.is_running = false;
  publish();
}

void MetricsPage::publish() {
  const auto text = prometheus_text(exposed_);
  if (server_) server_->set(text);
  if (file_.empty()) return;
  if (is_in_run_) run_.check();
  replace_text(file_, text);
}

}  // namespace lockstep

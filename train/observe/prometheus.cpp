#include "train/observe/prometheus.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/utf8.h"
#include "train/observe/step_metrics.h"

namespace lockstep {
namespace {

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

// Text of a label, with backslash, quote and newline escaped.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : replaced_utf8(text)) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

class Text {
 public:
  explicit Text(const std::string& run) : run_(str("run=\"", escaped(run), '"')) {}

  void gauge(const char* name, const char* help, double value) {
    if (std::isnan(value)) return;
    head(name, help, "gauge");
    sample(name, run_, value);
  }
  void counter(const char* name, const char* help, double value) {
    head(name, help, "counter");
    sample(name, run_, value);
  }
  // Each adds a sample for each known value, with its name in `label`.
  template <class Pairs>
  void gauges(const char* name, const char* help, const char* label, const Pairs& pairs) {
    samples("gauge", name, help, label, pairs);
  }
  template <class Pairs>
  void counters(const char* name, const char* help, const char* label, const Pairs& pairs) {
    samples("counter", name, help, label, pairs);
  }
  std::string take() { return std::move(text_); }

 private:
  template <class Pairs>
  void samples(const char* type, const char* name, const char* help, const char* label,
               const Pairs& pairs) {
    bool any = false;
    for (const auto& [key, value] : pairs) {
      if (std::isnan(value)) continue;
      if (!std::exchange(any, true)) head(name, help, type);
      sample(name, str(run_, ',', label, "=\"", escaped(key), '"'), value);
    }
  }
  void head(const char* name, const char* help, const char* type) {
    text_ += str("# HELP lockstep_", name, " ", help, "\n# TYPE lockstep_", name, " ", type, "\n");
  }
  void sample(const char* name, const std::string& labels, double value) {
    text_ += str("lockstep_", name, "{", labels, "} ", number(value), "\n");
  }

  std::string run_, text_;
};

void add_progress(Text& text, const Exposed& e) {
  text.gauge("running", "1 while the run trains, 0 once it has ended.", e.is_running ? 1 : 0);
  if (e.step) text.gauge("step", "Last completed step.", static_cast<double>(*e.step));
  text.gauge("steps", "Last step of the run.", static_cast<double>(e.steps));
  text.gauge("last_step_timestamp_seconds",
             "Time of the last step; before the first step, time when this process began.",
             e.last_step_time_seconds);
  text.counter("tokens_total", "Tokens that this process trained on, over all ranks.",
               static_cast<double>(e.tokens));
  text.counter("skipped_steps_total", "Steps of this process with a skipped update.",
               static_cast<double>(e.skipped_steps));
  text.counter("nonfinite_steps_total",
               "Steps of this process whose loss or gradient norm was not finite.",
               static_cast<double>(e.nonfinite_steps));
  text.counter("loss_spikes_total",
               "Steps of this process whose loss was over 6 standard deviations above the mean.",
               static_cast<double>(e.loss_spikes));
  text.counter("data_wait_seconds_total", "Time that steps of this process waited for data.",
               e.data_wait_seconds);
  text.counter("checkpoint_seconds_total",
               "Time that training in this process waited for checkpoints.", e.checkpoint_seconds);
  text.counter("evaluation_seconds_total", "Time that this process spent on evaluation.",
               e.evaluation_seconds);
  if (e.validation_loss)
    text.gauge("validation_loss", "Loss of the last evaluation, in nats per token.",
               *e.validation_loss);
}

void add_checkpoints(Text& text, const Exposed& e) {
  if (e.checkpoint_interval_steps > 0)
    text.gauge("checkpoint_interval_steps", "Interval between checkpoints.",
               static_cast<double>(e.checkpoint_interval_steps));
  if (e.saves.step)
    text.gauge("checkpoint_step", "Newest saved step.", static_cast<double>(*e.saves.step));
  text.gauge("checkpoint_timestamp_seconds", "Time when the newest checkpoint was saved.",
             e.saves.time_seconds);
  text.counter("checkpoint_failures_total", "Saves of this process that failed.",
               static_cast<double>(e.saves.failures));
  std::map<std::string, double> steps, times, failures;  // by destination
  for (const auto& [to, copies] : e.copies) {
    if (copies.step) steps[to] = static_cast<double>(*copies.step);
    times[to] = copies.time_seconds;
    failures[to] = static_cast<double>(copies.failures);
  }
  constexpr const char* kLabel = "destination";
  text.gauges("checkpoint_copy_step", "Newest step that this process copied.", kLabel, steps);
  text.gauges("checkpoint_copy_timestamp_seconds", "Time when the newest copied step was copied.",
              kLabel, times);
  text.counters("checkpoint_copy_failures_total", "Copies of this process that failed.", kLabel,
                failures);
}

void add_step(Text& text, const StepReport& r) {
#define LOCKSTEP_ADD(member, value, tag, name, help) \
  if ((name)[0] != '\0') text.gauge(name, help, static_cast<double>(value));
  LOCKSTEP_STEP_METRICS(LOCKSTEP_ADD)
#undef LOCKSTEP_ADD
  text.gauge("joules_per_token",
             "Energy per token, assuming that all GPUs draw the power of rank 0's GPU.",
             r.joules_per_token);
  if (r.peak_bytes > 0)
    text.gauge("memory_used_bytes",
               "Memory in use on rank 0's GPU; without a GPU, peak memory of its process.",
               static_cast<double>(r.peak_bytes));
  if (r.limit_bytes > 0)
    text.gauge("memory_limit_bytes", "Memory of rank 0's GPU, or of its host.",
               static_cast<double>(r.limit_bytes));
}

void add_components(Text& text, const StepTime& time) {
  std::vector<std::pair<const char*, double>> components;
  for (std::size_t i = 0; i < kComponents; ++i)
    components.emplace_back(name(static_cast<Component>(i)), time.seconds[i]);
  text.gauges("component_seconds", "Time by component of the last timed step.", "component",
              components);
}

void add_slowest(Text& text, const SlowestRank& slowest) {
  const std::array seconds{std::pair(std::to_string(slowest.rank), slowest.seconds)};
  text.gauges("slowest_rank_seconds",
              "Time of a step on the slowest rank, without waiting for others.", "rank", seconds);
  text.gauge("median_rank_seconds",
             "Time of a step on the median rank, without waiting for others.", slowest.median);
}

void add_plan(Text& text, const PlanFile::Step& planned) {
  text.gauge("plan_step_seconds", "Planned time of a step.", planned.seconds);
  text.gauge("plan_mfu_ratio", "Planned value of lockstep_mfu_ratio.", planned.mfu);
  text.gauges("plan_component_seconds", "Planned time of a step by component.", "component",
              planned.components);
}

void add_goodput(Text& text, const Goodput& goodput) {
  text.gauge("goodput_ratio", "Productive time over the wall time since the run's first start.",
             goodput.ratio());
  text.gauges("goodput_seconds", "Wall time of the run by use, over all starts.", "kind",
              goodput.parts());
  text.gauge("restarts", "Number of starts of the run without the first.",
             static_cast<double>(goodput.restarts));
  text.gauges("restart_seconds",
              "Seconds from the last step before a restart to its first step, by phase.", "phase",
              goodput.phases.parts());
}

void add_gpu(Text& text, const GpuReading& gpu, double energy_joules) {
  text.gauge("gpu_clock_hertz", "Multiprocessor clock of rank 0's GPU.", gpu.clock_mhz * 1e6);
  text.gauge("gpu_power_watts", "Power draw of rank 0's GPU.", gpu.power_watts);
  text.gauge("gpu_temperature_celsius", "Temperature of rank 0's GPU.", gpu.temperature_celsius);
  if (gpu.power_capped) {  // otherwise NVML does not report why clocks are throttled
    text.gauge("gpu_power_capped", "1 if the power limit sets the clocks, as is usual under load.",
               *gpu.power_capped ? 1 : 0);
    text.gauge("gpu_throttled",
               "1 if heat or the power supply throttle the clocks of rank 0's GPU.",
               gpu.slowed_by.empty() ? 0 : 1);
  }
  text.counter("gpu_energy_joules_total",
               "Energy used by rank 0's GPU since this process's first step.", energy_joules);
}

}  // namespace

std::string prometheus_text(const Exposed& exposed) {
  Text text(exposed.run);
  add_progress(text, exposed);
  add_checkpoints(text, exposed);
  if (exposed.report) add_step(text, *exposed.report);
  if (exposed.time) add_components(text, *exposed.time);
  if (exposed.slowest) add_slowest(text, *exposed.slowest);
  if (exposed.planned) add_plan(text, *exposed.planned);
  if (exposed.goodput) add_goodput(text, *exposed.goodput);
  if (exposed.gpu) add_gpu(text, *exposed.gpu, exposed.energy_joules);
  return text.take();
}

}  // namespace lockstep

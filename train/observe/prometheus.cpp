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

// Of a label: backslash, quote and newline are escaped.
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
  // One sample for each name that is known, in `label`.
  template <class Pairs>
  void gauges(const char* name, const char* help, const char* label, const Pairs& pairs) {
    bool any = false;
    for (const auto& [key, value] : pairs) {
      if (std::isnan(value)) continue;
      if (!std::exchange(any, true)) head(name, help, "gauge");
      sample(name, str(run_, ',', label, "=\"", escaped(key), '"'), value);
    }
  }
  std::string take() { return std::move(text_); }

 private:
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
  if (e.step) text.gauge("step", "The last step that was done.", static_cast<double>(*e.step));
  text.gauge("steps", "The step that the run ends with.", static_cast<double>(e.steps));
  text.gauge("last_step_timestamp_seconds",
             "When the last step was done; before the first one, when this process began.",
             e.last_step_time_seconds);
  text.counter("tokens_total", "Tokens that this process trained on, of all ranks.",
               static_cast<double>(e.tokens));
  text.counter("skipped_steps_total", "Steps of this process whose update was skipped.",
               static_cast<double>(e.skipped_steps));
  text.counter("data_wait_seconds_total", "For which steps of this process waited for data.",
               e.data_wait_seconds);
  text.counter("checkpoint_seconds_total", "For which this process's training waited for saves.",
               e.checkpoint_seconds);
  text.counter("evaluation_seconds_total", "For which this process evaluated.",
               e.evaluation_seconds);
  if (e.validation_loss)
    text.gauge("validation_loss", "Of the last evaluation, in nats a token.", *e.validation_loss);
}

void add_step(Text& text, const StepReport& r) {
#define LOCKSTEP_ADD(member, value, tag, name, help) \
  if ((name)[0] != '\0') text.gauge(name, help, static_cast<double>(value));
  LOCKSTEP_STEP_METRICS(LOCKSTEP_ADD)
#undef LOCKSTEP_ADD
  text.gauge("joules_per_token", "Of all GPUs, taken to be as rank 0's is.", r.joules_per_token);
  if (r.peak_bytes > 0)
    text.gauge("memory_used_bytes", "Of rank 0's GPU; without one, the most of its process.",
               static_cast<double>(r.peak_bytes));
  if (r.limit_bytes > 0)
    text.gauge("memory_limit_bytes", "Of rank 0's GPU, or its machine.",
               static_cast<double>(r.limit_bytes));
}

void add_components(Text& text, const StepTime& time) {
  std::vector<std::pair<const char*, double>> components;
  for (std::size_t i = 0; i < kComponents; ++i)
    components.emplace_back(name(static_cast<Component>(i)), time.seconds[i]);
  text.gauges("component_seconds", "What the last step that was timed went to.", "component",
              components);
}

void add_slowest(Text& text, const SlowestRank& slowest) {
  const std::array seconds{std::pair(std::to_string(slowest.rank), slowest.seconds)};
  text.gauges("slowest_rank_seconds", "Of a step, what the slowest rank needs itself.", "rank",
              seconds);
  text.gauge("median_rank_seconds", "Of a step, what the median of all ranks needs itself.",
             slowest.median);
}

void add_plan(Text& text, const PlanFile::Step& planned) {
  text.gauge("plan_step_seconds", "Of a step, as it was planned.", planned.seconds);
  text.gauge("plan_mfu_ratio", "As lockstep_mfu_ratio, as it was planned.", planned.mfu);
  text.gauges("plan_component_seconds", "What a step goes to, as it was planned.", "component",
              planned.components);
}

void add_goodput(Text& text, const Goodput& goodput) {
  text.gauge("goodput_ratio", "Productive seconds over those since the run's first start.",
             goodput.ratio());
  text.gauges("goodput_seconds", "What the run's wall time went to, across restarts.", "kind",
              goodput.parts());
  text.gauge("restarts", "Starts of the run but the first.", static_cast<double>(goodput.restarts));
}

void add_gpu(Text& text, const GpuReading& gpu, double energy_joules) {
  text.gauge("gpu_clock_hertz", "Of the multiprocessors of rank 0's GPU.", gpu.clock_mhz * 1e6);
  text.gauge("gpu_power_watts", "Of rank 0's GPU.", gpu.power_watts);
  text.gauge("gpu_temperature_celsius", "Of rank 0's GPU.", gpu.temperature_celsius);
  if (gpu.power_capped) {  // else NVML does not say what holds clocks down
    text.gauge("gpu_power_capped", "1: the power limit sets the clocks, as is usual under load.",
               *gpu.power_capped ? 1 : 0);
    text.gauge("gpu_throttled", "1: heat or the power supply hold the clocks of rank 0's GPU down.",
               gpu.slowed_by.empty() ? 0 : 1);
  }
  text.counter("gpu_energy_joules_total", "That rank 0's GPU took since this process's first step.",
               energy_joules);
}

}  // namespace

std::string prometheus_text(const Exposed& exposed) {
  Text text(exposed.run);
  add_progress(text, exposed);
  if (exposed.report) add_step(text, *exposed.report);
  if (exposed.time) add_components(text, *exposed.time);
  if (exposed.slowest) add_slowest(text, *exposed.slowest);
  if (exposed.planned) add_plan(text, *exposed.planned);
  if (exposed.goodput) add_goodput(text, *exposed.goodput);
  if (exposed.gpu) add_gpu(text, *exposed.gpu, exposed.energy_joules);
  return text.take();
}

}  // namespace lockstep

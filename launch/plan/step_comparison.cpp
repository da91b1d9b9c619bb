#include "launch/plan/step_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/error.h"
#include "core/units.h"
#include "data/source.h"

namespace lockstep {
namespace {

constexpr double kTooMuch = 0.1;     // least reported share of the planned time
constexpr double kOfTheStep = 0.01;  // least reported share of the step

constexpr std::array kComponentsInOrder = [] {
  std::array<Component, kComponents> all{};
  for (std::size_t i = 0; i < kComponents; ++i)
    all[i] = static_cast<Component>(i);
  return all;
}();

// The likely cause if a component takes longer than planned.
const char* likely_cause(Component component, const RunsOn& where) {
  const bool on_gpu = where.device == Device::Kind::cuda;
  switch (component) {
    case Component::products:
      return on_gpu ? "clocks are throttled, or other programs use this GPU"
                    : "other programs use these CPU cores, or their clocks are throttled";
    case Component::attention:
      return on_gpu ? "attention uses another engine than planned (see the log), or clocks are "
                      "throttled"
                    : "other programs use these CPU cores, or their clocks are throttled";
    case Component::memory_bound:
    case Component::optimizer:
      return on_gpu ? "other programs use the memory of this GPU, or the memory is slower than "
                      "planned"
                    : "other programs use the CPU cores or memory of this host, or these are "
                      "slower than planned";
    case Component::communication_tensor:
      return "links in a tensor-parallel group are slower than planned, or a rank is late";
    case Component::communication_shard:
    case Component::communication_replicate:
      return where.hosts > 1 ? "the network is slower than planned, or a host is late"
             : on_gpu        ? "links between ranks are slower than planned, or a rank is late"
                             : "a rank is late, and the others wait for it";
    case Component::communication_ranks: return "a rank is late, and all others wait for it";
    case Component::communication_host:
      return "copies between GPU and host share a link, or use the memory of another CPU socket";
    case Component::data: return "storage, or the shard cache, is slower than steps read data";
    case Component::checkpoint: return "storage writes more slowly than planned";
    case Component::other: return "the host is late: its CPU cores are busy or too few";
  }
  return "";
}

// The likely cause if a component takes less time than planned.
const char* likely_cause_of_less(Component component) {
  switch (component) {
    case Component::communication_tensor:
    case Component::communication_shard:
    case Component::communication_replicate:
    case Component::communication_ranks:
      return "more of it overlaps with compute than planned, or links are faster";
    case Component::data:
    case Component::checkpoint: return "storage is faster than planned";
    default:
      return "these hosts are faster than planned; measure them again with `lockstep preflight`";
  }
}

bool waits_for_ranks(Component component) {
  return component == Component::communication_tensor ||
         component == Component::communication_shard ||
         component == Component::communication_replicate ||
         component == Component::communication_ranks;
}

std::string seconds_text(double seconds) {
  return seconds == 0 ? "0" : human_seconds(seconds);
}

std::string difference(double planned, double measured) {
  if (planned == 0) return measured > 0 ? "new" : "";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%+.0f%%", 100 * (measured / planned - 1));
  return text.data();
}

std::string row(const std::string& name, const std::string& plan, const std::string& measured,
                const std::string& differs) {
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "  %-24s %8s %8s %7s", name.c_str(), plan.c_str(),
                measured.c_str(), differs.c_str());
  return text.data();
}

std::string cause_in_words(const Deviation& d, const RunsOn& where) {
  if (!where.unlike_plan.empty()) return where.unlike_plan;
  if (d.measured < d.planned) return likely_cause_of_less(d.component);
  const bool by_clocks =
      d.component == Component::products || d.component == Component::attention ||
      d.component == Component::memory_bound || d.component == Component::optimizer;
  if (!by_clocks || where.slowed_by.empty()) return likely_cause(d.component, where);
  return str("GPU clocks are throttled by ", joined(where.slowed_by));
}

}  // namespace

void MeanStep::add(const StepReport& report) {
  if (!is_warm_) {
    is_warm_ = true;
    return;
  }
  ++all_;
  checkpoint_seconds_ += report.time[Component::checkpoint];
  if (std::isnan(report.time[Component::other])) return;
  ++timed_;
  for (std::size_t i = 0; i < kComponents; ++i)
    sum_.seconds[i] += report.time.seconds[i];
}

StepTime MeanStep::time() const {
  StepTime mean = sum_;
  for (double& seconds : mean.seconds)
    seconds /= static_cast<double>(timed_);
  mean[Component::checkpoint] = checkpoint_seconds_ / static_cast<double>(all_);
  return mean;
}

double MeanStep::own_seconds() const {
  if (timed_ == 0) return std::numeric_limits<double>::quiet_NaN();
  const StepTime mean = time();
  double own = 0;
  for (const Component component : kComponentsInOrder)
    if (!waits_for_ranks(component) && component != Component::checkpoint) own += mean[component];
  return own;
}

std::vector<Deviation> deviations(const StepTime& planned, const StepTime& measured) {
  std::vector<Deviation> found;
  const double floor = kOfTheStep * planned.total();
  for (const Component component : kComponentsInOrder) {
    const double by = std::abs(measured[component] - planned[component]);
    if (by > kTooMuch * planned[component] && by > floor)
      found.push_back({component, planned[component], measured[component]});
  }
  return found;
}

std::string comparison_table(const StepTime& planned, const StepTime& measured) {
  auto text = row("component", "plan", "measured", "differs");
  const auto add = [&](const char* name, double plan, double seconds) {
    text +=
        str('\n', row(name, seconds_text(plan), seconds_text(seconds), difference(plan, seconds)));
  };
  for (const Component component : kComponentsInOrder)
    if (planned.shows(component) || measured.shows(component))
      add(in_words(component), planned[component], measured[component]);
  add("step", planned.total(), measured.total());
  return text;
}

std::string in_words(const std::vector<Deviation>& deviations, const RunsOn& where) {
  std::string text;
  std::string said;
  for (const Deviation& d : deviations) {
    const auto cause = cause_in_words(d, where);
    text += str("\n  ", in_words(d.component),
                d.component == Component::products ? " take " : " takes ", seconds_text(d.measured),
                ", planned ", seconds_text(d.planned), " (", difference(d.planned, d.measured),
                "): ", cause == said ? "same cause" : cause);
    said = cause;
  }
  return text;
}

}  // namespace lockstep

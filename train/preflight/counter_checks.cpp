#include "train/preflight/counter_checks.h"

#include <optional>
#include <set>
#include <string>

namespace lockstep {
namespace {

// Of InfiniBand and its like: "mlx5_0 port 1". Ethernet's come and go with containers.
std::set<std::string> ports_gone(const Counters& before, const Counters& now) {
  std::set<std::string> gone;
  for (const auto& [counter, count] : before)
    if (counter.find(" port ") != counter.npos && !now.contains(counter))
      gone.insert(counter.substr(0, counter.rfind(' ')));
  return gone;
}

void check_machine(PreflightRank& rank, const Counters& before, const Counters& now) {
  rank.add({.check = "errors of adapters and processors, new", .limit = 0}, [&](Finding& f) {
    if (before.empty() && now.empty()) return;  // the system counts nothing
    f.value = 0;
    const auto add = [&](std::int64_t count, const std::string& what) {
      f.value += static_cast<double>(count);
      f.detail += str(f.detail.empty() ? "" : ", ", what);
    };
    for (const auto& [counter, count] : growth(before, now))
      add(count, str(counter, " +", count));
    for (const auto& port : ports_gone(before, now))
      add(1, str(port, " is gone"));
  });
}

void check_gpu(PreflightRank& rank, const GpuHealth& before, const GpuHealth& now) {
  const auto check = [&](const char* what, const std::optional<std::int64_t>& count) {
    rank.add({.check = what, .limit = 0}, [&](Finding& f) {
      if (count) f.value = static_cast<double>(*count);
    });
  };
  check("uncorrected errors of the GPU's memory", now.uncorrected_errors);
  check("rows of the GPU's memory to be replaced", now.needs_repair);
  check("NVLinks that are down", now.links_down);
  std::optional<std::int64_t> new_errors;
  if (now.link_errors && before.link_errors) new_errors = *now.link_errors - *before.link_errors;
  check("errors of NVLinks, new", new_errors);
}

}  // namespace

HealthCounters read_counters(const GpuMonitor* monitor) {
  return {error_counters(), monitor == nullptr ? GpuHealth() : monitor->health()};
}

void check_counters(PreflightRank& rank, const HealthCounters& before, const HealthCounters& now) {
  check_machine(rank, before.machine, now.machine);
  if (rank.on_gpus()) check_gpu(rank, before.gpu, now.gpu);
}

}  // namespace lockstep

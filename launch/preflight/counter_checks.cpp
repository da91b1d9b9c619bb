#include "launch/preflight/counter_checks.h"

#include <optional>
#include <set>
#include <string>

namespace lockstep {
namespace {

// Ports of InfiniBand NICs ("mlx5_0 port 1") that disappeared. Ethernet interfaces are ignored,
// because they come and go with containers.
std::set<std::string> ports_gone(const Counters& before, const Counters& now) {
  std::set<std::string> gone;
  for (const auto& [counter, count] : before)
    if (counter.find(" port ") != counter.npos && !now.contains(counter))
      gone.insert(counter.substr(0, counter.rfind(' ')));
  return gone;
}

void check_machine(PreflightRank& rank, const Counters& before, const Counters& now) {
  rank.add({.check = "errors of NICs and CPUs, new", .limit = 0}, [&](Finding& f) {
    if (before.empty() && now.empty()) return;  // the system has no counters
    f.value = 0;
    const auto add = [&](std::int64_t count, const std::string& what) {
      f.value += static_cast<double>(count);
      f.detail += str(f.detail.empty() ? "" : ", ", what);
    };
    for (const auto& [counter, count] : growth(before, now))
      add(count, str(counter, " +", count));
    for (const auto& port : ports_gone(before, now))
      add(1, str(port, " disappeared"));
  });
}

// True if NVLink switches connect the GPU to others of its host. Otherwise it is normal that no
// NVLink is up: the GPU is alone, or a card without a bridge.
bool is_joined(const PreflightRank& rank) {
  constexpr int kMostOfBridge = 2;
  return rank.known != nullptr && rank.known->domain_ranks > kMostOfBridge &&
         host_ranks(rank.topology, rank.world.rank()).size() > 1;
}

}  // namespace

void check_gpu_counters(PreflightRank& rank, const GpuHealth& before, const GpuHealth& now) {
  const auto check = [&](const char* what, const auto& answer) {
    rank.add({.check = what, .limit = 0}, [&](Finding& f) {
      require_answer(answer.failure);
      if (answer.value) f.value = static_cast<double>(*answer.value);
    });
  };
  check("uncorrected errors of the GPU's memory", now.uncorrected_errors);
  check("rows of the GPU's memory to be replaced", now.needs_repair);
  auto down = now.links_down;
  if (now.links_up.value == 0 && !is_joined(rank)) down.value.reset();
  check("NVLinks that are down", down);
  auto errors = now.link_errors;
  if (errors.failure.empty()) errors.failure = before.link_errors.failure;
  if (!before.link_errors.value) errors.value.reset();
  if (errors.value) *errors.value -= *before.link_errors.value;
  check("errors of NVLinks, new", errors);
}

HealthCounters read_counters(const GpuMonitor* monitor) {
  return {error_counters(), monitor == nullptr ? GpuHealth() : monitor->health()};
}

void check_counters(PreflightRank& rank, const HealthCounters& before, const HealthCounters& now) {
  check_machine(rank, before.machine, now.machine);
  if (rank.on_gpus()) check_gpu_counters(rank, before.gpu, now.gpu);
}

}  // namespace lockstep

#include "checkpoint/restore_plan.h"

#include <algorithm>

namespace lockstep {

int RestorePlan::source_of(std::size_t file, int host) const {
  const auto& hosts = holders.at(file);
  if (hosts.empty()) return is_shared ? kShared : kNowhere;
  const auto after = std::ranges::upper_bound(hosts, host);
  return after == hosts.begin() ? hosts.back() : *std::prev(after);
}

std::size_t RestorePlan::missing() const {
  if (is_shared) return 0;
  return static_cast<std::size_t>(
      std::ranges::count_if(holders, [](const auto& hosts) { return hosts.empty(); }));
}

void RestorePlan::drop(int host, std::size_t file) {
  if (host == kShared)
    is_shared = false;
  else
    std::erase(holders.at(file), host);
}

void RestorePlan::drop(int host) {
  for (std::size_t file = 0; file < holders.size(); ++file)
    drop(host, file);
}

std::vector<RestorePlan> plan_restore(
    std::span<const HeldFiles> held, const std::set<std::pair<std::int64_t, std::string>>& shared) {
  std::map<std::pair<std::int64_t, std::string>, RestorePlan> plans;
  for (const auto& of_host : held) {
    const auto [entry, is_new] = plans.try_emplace({of_host.step, of_host.save});
    auto& plan = entry->second;
    if (is_new) {
      plan.step = of_host.step;
      plan.save = of_host.save;
      plan.is_shared = shared.contains(entry->first);
      plan.holders.resize(of_host.files_in_all);
    }
    plan.was_copied = plan.was_copied || of_host.was_copied;
    for (const auto file : of_host.files)
      if (file < plan.holders.size()) plan.holders[file].push_back(of_host.host);
  }
  std::vector<RestorePlan> newest_first;
  for (auto& [save, plan] : plans) {
    for (auto& hosts : plan.holders)
      std::ranges::sort(hosts);
    newest_first.push_back(std::move(plan));
  }
  std::ranges::reverse(newest_first);
  return newest_first;
}

}  // namespace lockstep

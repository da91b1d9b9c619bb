#include "core/control_groups.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string_view>

#include "core/function_ref.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr auto kUnlimited = std::numeric_limits<std::int64_t>::max();

bool lists(const std::string& names, std::string_view name) {  // "cpu,cpuacct" lists "cpu"
  std::istringstream parts(names);
  for (std::string part; std::getline(parts, part, ',');)
    if (part == name) return true;
  return false;
}

// Visits the directory of each group that limits `controller` ("cpu"), from the process's group to
// the root. A container may see its own group as the root.
void visit(const ControlGroups& groups, std::string_view controller,
           FunctionRef<void(const fs::path&)> act) {
  std::istringstream lines(groups.membership);
  for (std::string id, controllers, path; std::getline(lines, id, ':') &&
                                          std::getline(lines, controllers, ':') &&
                                          std::getline(lines, path);) {
    const bool version_2 = controllers.empty();
    if (!version_2 && !lists(controllers, controller)) continue;
    const auto root = version_2 ? groups.root : groups.root / controller;
    for (fs::path group = path;; group = group.parent_path()) {
      act(root / group.relative_path());
      if (!group.has_relative_path()) break;
    }
  }
}

// The number at the start of a file, or `none` if there is no number ("max") or no file.
template <class Number>
Number number_in(const fs::path& file, Number none) {
  Number number{};
  return std::ifstream(file) >> number ? number : none;
}

// Sum of the numbers of these keys in a file of lines "key number".
std::int64_t sum_of(std::initializer_list<std::string_view> keys, const fs::path& file) {
  std::ifstream in(file);
  std::int64_t sum = 0, number = 0;
  for (std::string name; in >> name >> number;)
    if (std::find(keys.begin(), keys.end(), name) != keys.end()) sum += number;
  return sum;
}

int granted_by(const fs::path& group) {
  double time = -1, period = 0;  // -1: no limit
  if (!(std::ifstream(group / "cpu.max") >> time >> period)) {
    time = number_in(group / "cpu.cfs_quota_us", -1.0);
    period = number_in(group / "cpu.cfs_period_us", 0.0);
  }
  if (time <= 0 || period <= 0) return INT_MAX;
  return static_cast<int>(std::ceil(std::min(time / period, 1e6)));
}

MemoryGranted memory_of(const fs::path& group, const char* limit, const char* used,
                        std::initializer_list<std::string_view> file_pages) {
  constexpr auto kNoLimit = std::int64_t{1} << 62;  // version 1 uses a number about this large
  const auto most = number_in(group / limit, kUnlimited);
  if (most >= kNoLimit) return {kUnlimited, kUnlimited};
  const auto bytes = number_in<std::int64_t>(group / used, 0);
  const auto in_use = std::max<std::int64_t>(bytes - sum_of(file_pages, group / "memory.stat"), 0);
  return {most, std::max<std::int64_t>(most - in_use, 0)};
}

}  // namespace

ControlGroups control_groups() {
  std::ostringstream membership;
  membership << std::ifstream("/proc/self/cgroup").rdbuf();
  return {membership.str(), "/sys/fs/cgroup"};
}

int processors_granted(const ControlGroups& groups) {
  int least = INT_MAX;
  visit(groups, "cpu", [&](const fs::path& group) { least = std::min(least, granted_by(group)); });
  return least;
}

MemoryGranted memory_granted(const ControlGroups& groups) {
  MemoryGranted least{kUnlimited, kUnlimited};
  visit(groups, "memory", [&](const fs::path& group) {
    for (const auto& granted :
         {memory_of(group, "memory.max", "memory.current", {"inactive_file", "active_file"}),
          memory_of(group, "memory.limit_in_bytes", "memory.usage_in_bytes",
                    {"total_inactive_file", "total_active_file"})}) {
      least.limit = std::min(least.limit, granted.limit);
      least.left = std::min(least.left, granted.left);
    }
  });
  return least;
}

}  // namespace lockstep

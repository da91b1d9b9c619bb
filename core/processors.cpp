#include "core/processors.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <fstream>
#include <sched.h>
#include <sstream>

namespace lockstep {
namespace {

// The kernel's mask: a bit for each processor, and as many words as it wants; cpu_set_t ends at
// 1024.
using Mask = std::vector<unsigned long>;
constexpr std::size_t kBits = 8 * sizeof(unsigned long);
constexpr std::size_t kMostWords = 1 << 16;

std::size_t bytes(const Mask& mask) {
  return mask.size() * sizeof(unsigned long);
}

// The first two numbers of a file ("max", no limit, is none); absent: 0.
struct Quota {
  double time = 0, period = 0;
};
Quota read_quota(const std::filesystem::path& group) {
  Quota quota;
  if (std::ifstream(group / "cpu.max") >> quota.time >> quota.period) return quota;
  quota = {};
  std::ifstream(group / "cpu.cfs_quota_us") >> quota.time;  // -1: no limit
  std::ifstream(group / "cpu.cfs_period_us") >> quota.period;
  return quota;
}

// Of the group at `path` below `root`, and of those above: a container may see its own as the root.
int least_granted(const std::filesystem::path& root, std::filesystem::path path) {
  int least = INT_MAX;
  for (;; path = path.parent_path()) {
    const auto quota = read_quota(root / path.relative_path());
    if (quota.time > 0 && quota.period > 0)
      least =
          std::min(least, static_cast<int>(std::ceil(std::min(quota.time / quota.period, 1e6))));
    if (!path.has_relative_path()) return least;
  }
}

}  // namespace

std::vector<int> affinity() {
  Mask mask(1);
  while (sched_getaffinity(0, bytes(mask), reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    if (errno != EINVAL || mask.size() >= kMostWords) return {};
    mask.assign(2 * mask.size(), 0);  // more processors than bits
  }
  std::vector<int> processors;
  for (std::size_t i = 0; i < mask.size() * kBits; ++i)
    if ((mask[i / kBits] >> i % kBits & 1) != 0) processors.push_back(static_cast<int>(i));
  return processors;
}

void set_affinity(std::span<const int> processors, pthread_t thread) {
  if (processors.empty()) return;
  const auto last =
      static_cast<std::size_t>(*std::max_element(processors.begin(), processors.end()));
  Mask mask(last / kBits + 1);
  for (const int processor : processors) {
    const auto i = static_cast<std::size_t>(processor);
    mask[i / kBits] |= 1ul << i % kBits;
  }
  pthread_setaffinity_np(thread, bytes(mask), reinterpret_cast<cpu_set_t*>(mask.data()));
}

int processors_granted(const std::string& membership, const std::filesystem::path& root) {
  int least = INT_MAX;
  std::istringstream lines(membership);
  for (std::string id, controllers, path; std::getline(lines, id, ':') &&
                                          std::getline(lines, controllers, ':') &&
                                          std::getline(lines, path);) {
    if (controllers.empty()) least = std::min(least, least_granted(root, path));
    if (("," + controllers + ",").find(",cpu,") != std::string::npos)
      least = std::min(least, least_granted(root / "cpu", path));
  }
  return least;
}

}  // namespace lockstep

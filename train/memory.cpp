#include "train/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace lockstep {
namespace {

// The value of "key:   123 kB" in a /proc file, in bytes; 0 where it is absent.
std::int64_t proc_bytes(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size())) * 1024;
  return 0;
}

// A control group's number; "max" and absence are no limit.
std::int64_t cgroup_bytes(const char* file) {
  std::ifstream in(file);
  std::int64_t bytes = 0;
  return in >> bytes ? bytes : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

std::int64_t process_peak_bytes() {
  return proc_bytes("/proc/self/status", "VmHWM:");
}

std::int64_t machine_memory_bytes() {
  return std::min(proc_bytes("/proc/meminfo", "MemTotal:"),
                  cgroup_bytes("/sys/fs/cgroup/memory.max"));
}

std::int64_t available_memory_bytes() {
  return std::min(proc_bytes("/proc/meminfo", "MemAvailable:"), machine_memory_bytes());
}

}  // namespace lockstep

#include "train/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "core/control_groups.h"
#include "core/error.h"
#include "core/units.h"

namespace lockstep {
namespace {

// The value of "key:   123 kB" in a /proc file, in bytes; 0 where it is absent.
std::int64_t proc_bytes(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size())) * 1024;
  return 0;
}

}  // namespace

std::int64_t process_peak_bytes() {
  return proc_bytes("/proc/self/status", "VmHWM:");
}

std::int64_t machine_memory_bytes() {
  return std::min(proc_bytes("/proc/meminfo", "MemTotal:"), memory_granted(control_groups()).limit);
}

std::int64_t available_memory_bytes() {
  return std::min(proc_bytes("/proc/meminfo", "MemAvailable:"),
                  memory_granted(control_groups()).left);
}

void require_memory(std::int64_t bytes, const char* remedy) {
  const auto available = available_memory_bytes();
  if (bytes > available)
    throw ConfigError(str("this needs ", human_memory(static_cast<double>(bytes)),
                          " of memory, and ", human_memory(static_cast<double>(available)),
                          " are free on this machine; ", remedy));
}

}  // namespace lockstep

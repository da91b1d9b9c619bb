#include "train/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "core/control_groups.h"
#include "core/error.h"
#include "core/units.h"

namespace lockstep {
namespace {

constexpr auto kUnknown = std::numeric_limits<std::int64_t>::max();

// The value of "key:   123 kB" in a /proc file, in bytes; `absent` without it.
std::int64_t proc_bytes(const char* file, const std::string& key, std::int64_t absent) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(key.size())) * 1024;
  return absent;
}

}  // namespace

std::int64_t process_peak_bytes() {
  return proc_bytes("/proc/self/status", "VmHWM:", 0);
}

std::int64_t machine_memory_bytes() {
  return std::min(proc_bytes("/proc/meminfo", "MemTotal:", kUnknown),
                  memory_granted(control_groups()).limit);
}

std::int64_t available_memory_bytes() {
  return std::min(proc_bytes("/proc/meminfo", "MemAvailable:", kUnknown),
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

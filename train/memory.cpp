#include "train/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "core/control_groups.h"
#include "core/error.h"
#include "core/gpu.h"
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

bool is_gpu(Device device) {
  return device.kind == Device::Kind::cuda;
}

}  // namespace

std::int64_t used_memory_bytes(Device device) {
  if (is_gpu(device)) return gpu::properties(device.index).memory_bytes - gpu::free_bytes();
  return proc_bytes("/proc/self/status", "VmHWM:", 0);
}

std::int64_t all_memory_bytes(Device device) {
  if (is_gpu(device)) return gpu::properties(device.index).memory_bytes;
  return std::min(proc_bytes("/proc/meminfo", "MemTotal:", kUnknown),
                  memory_granted(control_groups()).limit);
}

std::int64_t available_memory_bytes(Device device) {
  if (is_gpu(device)) return gpu::free_bytes();
  return std::min(proc_bytes("/proc/meminfo", "MemAvailable:", kUnknown),
                  memory_granted(control_groups()).left);
}

void require_memory(Device device, const Arenas::Bytes& bytes, const char* remedy) {
  const auto require = [&](Device on, std::int64_t needed) {
    const auto available = available_memory_bytes(on);
    if (needed > available)
      throw ConfigError(str("this needs ", human_memory(static_cast<double>(needed)),
                            " of memory, and ", human_memory(static_cast<double>(available)),
                            " are free on this ", is_gpu(on) ? "GPU" : "machine", "; ", remedy));
  };
  if (!is_gpu(device)) return require(device, bytes.device + bytes.pinned);
  require(device, bytes.device);
  require(Device{}, bytes.pinned);
}

}  // namespace lockstep

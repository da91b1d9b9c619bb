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

// For the code of kernels and libraries, which is loaded when it is first used.
constexpr std::int64_t kGpuReserve = std::int64_t{1} << 30;
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

std::int64_t resident_memory_bytes(Device device) {
  if (is_gpu(device)) return used_memory_bytes(device);
  return proc_bytes("/proc/self/status", "VmRSS:", 0);
}

std::int64_t all_memory_bytes(Device device) {
  if (is_gpu(device)) return gpu::properties(device.index).memory_bytes;
  return std::min(proc_bytes("/proc/meminfo", "MemTotal:", kUnknown),
                  memory_granted(control_groups()).limit);
}

std::int64_t available_memory_bytes(Device device) {
  if (is_gpu(device)) return std::max<std::int64_t>(gpu::free_bytes() - kGpuReserve, 0);
  return std::min(proc_bytes("/proc/meminfo", "MemAvailable:", kUnknown),
                  memory_granted(control_groups()).left);
}

bool has_memory(Device device, const Arenas::Bytes& bytes, int ranks) {
  if (!is_gpu(device))
    return ranks * (bytes.device + bytes.pinned) <= available_memory_bytes(device);
  return bytes.device <= available_memory_bytes(device) &&
         ranks * bytes.pinned <= available_memory_bytes(Device{});
}

void require_memory(Device device, const Arenas::Bytes& bytes, const char* remedy,
                    const std::string& others, int ranks) {
  if (has_memory(device, bytes, ranks)) return;
  const bool on_gpu = is_gpu(device) && bytes.device > available_memory_bytes(device);
  const auto on_host = is_gpu(device) ? bytes.pinned : bytes.device + bytes.pinned;
  const auto needed = on_gpu ? bytes.device : ranks * on_host;
  const auto available = available_memory_bytes(on_gpu ? device : Device{});
  throw ConfigError(str("this needs ", human_memory(static_cast<double>(needed)), " of memory",
                        !on_gpu && ranks > 1 ? str(" for ", ranks, " ranks on this machine") : "",
                        ", and ", human_memory(static_cast<double>(available)),
                        " are free on this ", on_gpu ? "GPU" + others : "machine", "; ", remedy));
}

}  // namespace lockstep

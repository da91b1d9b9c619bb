#include "train/step/memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "core/control_groups.h"
#include "core/error.h"
#include "core/gpu.h"
#include "core/units.h"

namespace lockstep {
namespace {

constexpr auto kUnknown = MemoryRoom::kUnknown;

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

std::int64_t file_memory_bytes() {
  return proc_bytes("/proc/self/status", "RssFile:", 0);
}

std::int64_t all_memory_bytes(Device device) {
  if (is_gpu(device)) return gpu::properties(device.index).memory_bytes;
  return std::min(proc_bytes("/proc/meminfo", "MemTotal:", kUnknown),
                  memory_granted(control_groups()).limit);
}

std::int64_t available_memory_bytes(Device device) {
  if (is_gpu(device)) return std::max<std::int64_t>(gpu::free_bytes() - kGpuReserveBytes, 0);
  return std::min(proc_bytes("/proc/meminfo", "MemAvailable:", kUnknown),
                  memory_granted(control_groups()).left);
}

bool MemoryRoom::has(const Arenas::Bytes& each) const {
  const auto of_host = is_gpu(device) ? each.pinned : each.device + each.pinned;
  return (!is_gpu(device) || each.device <= gpu_bytes) && of_host <= host_bytes / ranks;
}

void MemoryRoom::require(const Arenas::Bytes& each, const std::string& remedy) const {
  if (has(each)) return;
  const bool on_gpu = is_gpu(device) && each.device > gpu_bytes;
  const auto of_host = is_gpu(device) ? each.pinned : each.device + each.pinned;
  const auto needed = on_gpu ? each.device : ranks * of_host;
  const auto available = on_gpu ? gpu_bytes : host_bytes;
  throw ConfigError(str("this needs ", human_memory(static_cast<double>(needed)), " of memory",
                        !on_gpu && ranks > 1 ? str(" for ", ranks, " ranks of a host") : "",
                        ", but ", human_memory(static_cast<double>(available)), " are free on ",
                        on_gpu ? gpu : machine, "; ", remedy));
}

MemoryRoom room_here(Device device, int ranks, const std::string& others) {
  MemoryRoom room{.device = device, .host_bytes = available_memory_bytes(Device{}), .ranks = ranks};
  if (is_gpu(device)) room.gpu_bytes = available_memory_bytes(device);
  room.gpu += others;
  return room;
}

}  // namespace lockstep

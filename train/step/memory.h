// Memory of this process and machine, for the step line and for refusing what cannot fit.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "core/arena.h"

namespace lockstep {

// Of a GPU, its own memory. Of the CPU, the host's:
//   used       the largest resident set of this process so far; on a GPU, what is taken of it now
//   resident   what this process has now; on a GPU, likewise
//   file       of resident, pages of files: its code and libraries', once they were used
//   all        of this machine, or of this process's control group if less
//   available  that a new allocation may take: not swapped, not killed
std::int64_t used_memory_bytes(Device device);
std::int64_t resident_memory_bytes(Device device);
std::int64_t file_memory_bytes();
std::int64_t all_memory_bytes(Device device);
std::int64_t available_memory_bytes(Device device);

// Of a GPU's memory, left for the code of kernels and libraries, which is loaded when it is first
// used: available memory is without it.
constexpr std::int64_t kGpuReserveBytes = std::int64_t{1} << 30;

// What ranks of one machine may take, here or on a machine that is planned for.
struct MemoryRoom {
  static constexpr auto kUnknown = std::numeric_limits<std::int64_t>::max();

  Device device;                       // that the ranks are on
  std::int64_t gpu_bytes = kUnknown;   // of a GPU's memory: each rank has its own
  std::int64_t host_bytes = kUnknown;  // of the host's, to all ranks together
  int ranks = 1;
  std::string gpu = "this GPU", machine = "this host";  // their names in messages

  bool has(const Arenas::Bytes& each) const;
  // Throws ConfigError where it has not: before an allocation, because Linux grants one that does
  // not fit and kills the process when it is used. `remedy`: what would need less.
  void require(const Arenas::Bytes& each, const std::string& remedy) const;
};
// What is available here now. `others`: what is said of other processes on the GPU.
MemoryRoom room_here(Device device, int ranks = 1, const std::string& others = "");

}  // namespace lockstep

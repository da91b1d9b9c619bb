// Memory of this process and host, for the step line and for rejecting what cannot fit.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "core/arena.h"

namespace lockstep {

// For a GPU, these are bytes of GPU memory. For the CPU, they are bytes of host memory:
//   used       largest resident set of this process so far; on a GPU, memory in use now
//   resident   resident set of this process now; on a GPU, memory in use now
//   file       part of resident in pages of files, that is code and libraries
//   all        memory of this host, or the limit of this process's control group if less
//   available  memory that a new allocation may take without swapping or being killed
std::int64_t used_memory_bytes(Device device);
std::int64_t resident_memory_bytes(Device device);
std::int64_t file_memory_bytes();
std::int64_t all_memory_bytes(Device device);
std::int64_t available_memory_bytes(Device device);

// GPU memory reserved for the code of kernels and libraries, which is loaded at first use.
// Available memory excludes it.
constexpr std::int64_t kGpuReserveBytes = std::int64_t{1} << 30;

// The memory that ranks of one host may use, on this host or on a planned one.
struct MemoryRoom {
  static constexpr auto kUnknown = std::numeric_limits<std::int64_t>::max();

  Device device;                       // of the ranks
  std::int64_t gpu_bytes = kUnknown;   // GPU memory of each rank
  std::int64_t host_bytes = kUnknown;  // host memory of all ranks together
  int ranks = 1;
  int domain_ranks = 1;                                 // ranks of an NVLink domain
  std::string gpu = "this GPU", machine = "this host";  // their names in messages

  bool has(const Arenas::Bytes& each) const;
  // Throws ConfigError if the memory is too small. Call it before an allocation, because Linux
  // grants one that does not fit and kills the process when it uses it. `remedy`: how to need less.
  void require(const Arenas::Bytes& each, const std::string& remedy) const;
};
// The memory that is available on this host now. `others`: text about other processes on the GPU.
MemoryRoom room_here(Device device, int ranks = 1, const std::string& others = "");

}  // namespace lockstep

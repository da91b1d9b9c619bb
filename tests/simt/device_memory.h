// DeviceMemory is the memory of the simulated GPU and the pinned memory of its host. Only kernels
// and copies can access the memory of the GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/simt/memory.h"

namespace simt {

class DeviceMemory {
 public:
  std::byte* allocate(std::size_t bytes);  // nullptr: more than the GPU has
  std::byte* allocate_pinned(std::size_t bytes);
  void release(std::byte* memory);
  std::size_t free_bytes() const;

  Region* region(const void* address);  // nullptr: not device or pinned memory
  void protect(bool accessible);

  // Throws Violation unless each side is inside one tensor or pinned.
  void copy(void* to, const void* from, std::size_t bytes);

 private:
  void forget_found() { found_ = nullptr, gap_begin_ = gap_end_ = nullptr; }
  void check_copied(const void* address, std::size_t bytes);
  std::vector<std::unique_ptr<Region>> regions_, pinned_;  // a pinned one is one tensor
  // The last results of region(): a region, and a gap between two regions.
  Region* found_ = nullptr;
  const std::byte *gap_begin_ = nullptr, *gap_end_ = nullptr;
  std::size_t used_ = 0;
};

DeviceMemory& device_memory();
// One host thread at a time uses the device. Work of a stream may submit more work, so the mutex is
// recursive.
std::recursive_mutex& device_mutex();

}  // namespace simt

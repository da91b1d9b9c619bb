// DeviceMemory: the memory of the simulated GPU, and the pinned memory of its host. Outside kernels
// and copies nothing can touch the former.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/simt/memory.h"

namespace simt {

class DeviceMemory {
 public:
  std::byte* allocate(std::size_t bytes);  // nullptr: more than there is
  std::byte* allocate_pinned(std::size_t bytes);
  void release(std::byte* memory);
  std::size_t free_bytes() const;

  Region* region(const void* address);  // nullptr: what kernels see, but the host's
  void protect(bool accessible);

  // Violation unless each side is of one tensor, or pinned.
  void copy(void* to, const void* from, std::size_t bytes);

 private:
  void forget_found() { found_ = nullptr, gap_begin_ = gap_end_ = nullptr; }
  void check_copied(const void* address, std::size_t bytes);
  std::vector<std::unique_ptr<Region>> regions_, pinned_;  // a pinned one is one tensor
  // What the last addresses were in: a region, and the gap between two.
  Region* found_ = nullptr;
  const std::byte *gap_begin_ = nullptr, *gap_end_ = nullptr;
  std::size_t used_ = 0;
};

DeviceMemory& device_memory();
// One host thread at a time uses the device; what a stream does may itself ask for more of it.
std::recursive_mutex& device_mutex();

}  // namespace simt

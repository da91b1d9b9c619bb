#include "tests/simt/device_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <utility>

#include "tests/simt/simt.h"

namespace simt {
namespace {

constexpr std::size_t kPoisonBytes = 1 << 20;  // of a new tensor
constexpr std::size_t kGuardBytes = 64 << 10;  // around an allocation, where no tensor can be

std::byte* map(std::size_t bytes, int protection) {
  void* p = mmap(nullptr, std::max<std::size_t>(bytes, 1), protection,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
}

// Device memory is accessible during the lifetime of an Accessible.
class Accessible {
 public:
  Accessible() { device_memory().protect(true); }
  ~Accessible() { device_memory().protect(false); }
  Accessible(const Accessible&) = delete;
  Accessible& operator=(const Accessible&) = delete;
};

}  // namespace

DeviceMemory& device_memory() {
  static DeviceMemory memory;
  return memory;
}

std::recursive_mutex& device_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

std::byte* DeviceMemory::allocate(std::size_t bytes) {
  if (bytes > free_bytes()) return nullptr;
  const auto guarded = bytes + 2 * kGuardBytes;
  auto* p = map(guarded, PROT_NONE);
  if (p == nullptr) return nullptr;
  used_ += bytes;
  forget_found();
  regions_.push_back(std::make_unique<Region>(p, guarded, false));
  return p + kGuardBytes;
}

std::byte* DeviceMemory::allocate_pinned(std::size_t bytes) {
  auto* p = map(bytes, PROT_READ | PROT_WRITE);
  if (p == nullptr) return nullptr;
  forget_found();
  pinned_.push_back(std::make_unique<Region>(p, bytes, false));
  pinned_.back()->add_tensor(p, bytes);
  return p;
}

void DeviceMemory::release(std::byte* memory) {
  if (memory == nullptr) return;
  forget_found();
  for (auto& region : regions_) {
    if (region->begin() + kGuardBytes != memory) continue;
    const auto bytes = static_cast<std::size_t>(region->end() - region->begin());
    munmap(region->begin(), bytes);
    used_ -= bytes - 2 * kGuardBytes;
    std::swap(region, regions_.back());
    regions_.pop_back();
    return;
  }
  for (auto& p : pinned_) {
    if (p->begin() != memory) continue;
    munmap(memory, std::max<std::size_t>(static_cast<std::size_t>(p->end() - memory), 1));
    std::swap(p, pinned_.back());
    pinned_.pop_back();
    return;
  }
  throw Violation("simt: memory is released that is not allocated");
}

std::size_t DeviceMemory::free_bytes() const {
  return device_bytes() - used_;
}

Region* DeviceMemory::region(const void* address) {
  if (found_ != nullptr && found_->holds(address)) return found_;
  const auto* at = static_cast<const std::byte*>(address);
  if (at >= gap_begin_ && at < gap_end_) return nullptr;
  const std::byte* begin = nullptr;
  const auto* end = reinterpret_cast<const std::byte*>(UINTPTR_MAX);
  for (const auto* regions : {&regions_, &pinned_})
    for (const auto& region : *regions) {
      if (region->holds(address)) return found_ = region.get();
      if (region->end() <= at) begin = std::max<const std::byte*>(begin, region->end());
      if (region->begin() > at) end = std::min<const std::byte*>(end, region->begin());
    }
  gap_begin_ = begin;
  gap_end_ = end;
  return nullptr;
}

void DeviceMemory::protect(bool accessible) {
  for (const auto& region : regions_)
    mprotect(region->begin(), static_cast<std::size_t>(region->end() - region->begin()),
             accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void DeviceMemory::check_copied(const void* address, std::size_t bytes) {
  const Region* found = region(address);
  if (found == nullptr) throw Violation("simt: a copy from or to host memory that is not pinned");
  if (!found->is_in_tensor(address, bytes)) throw Violation("simt: a copy leaves its tensor");
}

std::byte* allocate_device(std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  return device_memory().allocate(bytes);
}

std::byte* allocate_pinned(std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  return device_memory().allocate_pinned(bytes);
}

void release(std::byte* memory) {
  const std::lock_guard lock(device_mutex());
  device_memory().release(memory);
}

std::size_t device_bytes() {
  const char* mib = std::getenv("LOCKSTEP_SIMT_MIB");
  return mib == nullptr ? std::size_t{16} << 30 : std::stoull(mib) << 20;
}

std::size_t free_device_bytes() {
  const std::lock_guard lock(device_mutex());
  return device_memory().free_bytes();
}

void tensor_begins(std::byte* memory, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  auto* region = device_memory().region(memory);
  if (region == nullptr) return;
  region->add_tensor(memory, bytes);
  const Accessible accessible;
  std::memset(memory, 0xff, std::min(bytes, kPoisonBytes));
}

void tensors_end(std::byte* memory, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  if (auto* region = device_memory().region(memory)) region->remove_tensors(memory, bytes);
}

void DeviceMemory::copy(void* to, const void* from, std::size_t bytes) {
  check_copied(to, bytes);
  check_copied(from, bytes);
  const Accessible accessible;
  std::memmove(to, from, bytes);
}

}  // namespace simt

#include "dist/job/shared_rings.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kHeadBytes = 4096;

std::size_t memory_bytes(std::size_t ring_bytes) {
  return kHeadBytes + 2 * ring_bytes;
}

}  // namespace

// What one side has done. Only it writes `written` and `read`; each has its own cache line. All
// operations are sequentially consistent: if a side announces its sleep and then finds nothing to
// do, the other side sees the announcement after its next act.
struct SharedRings::Side {
  alignas(64) std::atomic<std::uint64_t> written;  // bytes put into its ring
  alignas(64) std::atomic<std::uint64_t> read;     // bytes taken from the other side's ring
  alignas(64) std::atomic<std::uint32_t> sleeps;   // events that it sleeps until
};

Descriptor SharedRings::create(std::size_t ring_bytes) {
  LOCKSTEP_CHECK(std::has_single_bit(ring_bytes), "rings of ", ring_bytes, " bytes");
  Descriptor memory(memfd_create("lockstep rings", MFD_CLOEXEC));
  if (!memory ||
      ftruncate(memory.number(), static_cast<off_t>(memory_bytes(ring_bytes))) != 0)  // to zeros
    throw TransientError(str("cannot make shared memory between ranks: ", reason(errno)));
  return memory;
}

SharedRings::SharedRings(const Descriptor& memory, std::size_t ring_bytes, int side)
    : ring_bytes_(ring_bytes), side_(side) {
  static_assert(2 * sizeof(Side) <= kHeadBytes && std::atomic<std::uint64_t>::is_always_lock_free);
  struct stat status {};
  const auto bytes = memory_bytes(ring_bytes);
  if (fstat(memory.number(), &status) != 0 || status.st_size != static_cast<off_t>(bytes))
    throw DataError(str("received shared memory of ", status.st_size, " bytes, expected ", bytes));
  void* mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.number(), /*offset=*/0);
  if (mapped == MAP_FAILED)
    throw TransientError(str("cannot map ", bytes, " bytes between ranks: ", reason(errno)));
  memory_ = static_cast<std::byte*>(mapped);
}

SharedRings::~SharedRings() {
  munmap(memory_, memory_bytes(ring_bytes_));
}

SharedRings::Side& SharedRings::side(int number) const {
  return std::launder(reinterpret_cast<Side*>(memory_))[number];
}

std::byte* SharedRings::ring(int of_side) const {
  return memory_ + kHeadBytes + static_cast<std::size_t>(of_side) * ring_bytes_;
}

std::size_t SharedRings::write(std::span<const std::byte> bytes) {
  const auto used = written_ - side(1 - side_).read;
  if (used > ring_bytes_) throw DataError("the shared memory is damaged");
  const auto count = std::min(bytes.size(), ring_bytes_ - used);
  if (count == 0) return 0;
  const auto begin = written_ % ring_bytes_, first = std::min(count, ring_bytes_ - begin);
  std::memcpy(ring(side_) + begin, bytes.data(), first);
  std::memcpy(ring(side_), bytes.data() + first, count - first);
  written_ += count;
  side(side_).written = written_;
  return count;
}

std::size_t SharedRings::read(std::span<std::byte> out) {
  const auto there = side(1 - side_).written - read_;
  if (there > ring_bytes_) throw DataError("the shared memory is damaged");
  const auto count = std::min(out.size(), there);
  if (count == 0) return 0;
  const auto begin = read_ % ring_bytes_, first = std::min(count, ring_bytes_ - begin);
  std::memcpy(out.data(), ring(1 - side_) + begin, first);
  std::memcpy(out.data() + first, ring(1 - side_), count - first);
  read_ += count;
  side(side_).read = read_;
  return count;
}

void SharedRings::sleep_until(std::uint32_t events) {
  side(side_).sleeps = events;
}

bool SharedRings::other_sleeps_until(std::uint32_t events) {
  auto& sleeps = side(1 - side_).sleeps;
  return (sleeps & events) != 0 && sleeps.exchange(0) != 0;
}

}  // namespace lockstep

// SharedRings: two ring buffers in memory that two processes of a host share, one for each
// direction. The memory has no name: it ends with the processes that map it, also if they are
// killed. Each process has one of the two sides, and uses it from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/descriptor.h"

namespace lockstep {

class SharedRings {
 public:
  // Events that a side waits for: bytes to read, or space to write.
  static constexpr std::uint32_t kData = 1, kSpace = 2;

  // Makes the memory of rings of `ring_bytes`, a power of two, which both sides then map. Both
  // throw TransientError if the system has no memory for it.
  static Descriptor create(std::size_t ring_bytes);
  //   side  0 or 1; the other process has the other one
  SharedRings(const Descriptor& memory, std::size_t ring_bytes, int side);
  SharedRings(const SharedRings&) = delete;
  SharedRings& operator=(const SharedRings&) = delete;
  ~SharedRings();

  // Transfer as many bytes as possible without waiting, and return their number. Throw DataError if
  // the counters of the other side contradict those of this one.
  std::size_t write(std::span<const std::byte> bytes);
  std::size_t read(std::span<std::byte> out);

  // A side announces that it is about to sleep until one of `events`, and then tries again: the
  // other side may have acted before it saw the announcement. 0: it does not sleep.
  void sleep_until(std::uint32_t events);
  // Whether the other side sleeps until one of `events`, which this side has just caused. Returns
  // true once: the caller then wakes it.
  bool other_sleeps_until(std::uint32_t events);

 private:
  struct Side;
  Side& side(int number) const;
  std::byte* ring(int of_side) const;

  std::byte* memory_ = nullptr;
  std::size_t ring_bytes_;
  int side_;
  std::uint64_t written_ = 0, read_ = 0;
};

}  // namespace lockstep

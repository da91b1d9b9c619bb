#include <algorithm>
#include <sstream>

#include "tests/simt/device_memory.h"
#include "tests/simt/simulator.h"

namespace simt {

Simulator& simulator() {
  static Simulator s;
  return s;
}

void Simulator::begin_work() {
  if (block_first_ > 0xc0000000u) throw Violation("simt: out of thread numbers");
  launch_first_ = block_first_;
  order_.threads_begin(launch_first_);
}

// Checks the copy like accesses of one thread.
void Simulator::copy(void* to, const void* from, std::size_t bytes) {
  begin_work();
  device_memory().copy(to, from, bytes);
  copied(from, bytes, false);
  copied(to, bytes, true);
  ++block_first_;
}

void Simulator::copied(const void* address, std::size_t bytes, bool is_write) {
  Region* region = device_memory().region(address);
  if (region == nullptr) return;
  const auto check = [&](const Stamp& earlier, const char* what) {
    if (!ordered(earlier, false))
      throw Violation(std::string("simt: a copy ") + (is_write ? "writes" : "reads") +
                      " what other work " + what + ", and nothing orders the two");
  };
  Cell* cells = region->cells(address);
  for (std::size_t i = 0; i < bytes; ++i) {
    auto& [write, reads] = cells[i];
    check(write, "wrote");
    if (is_write) {
      for (const Stamp& read : reads)
        check(read, "reads");
      write = {block_first_, 1};
    } else {
      reads = {Stamp{block_first_, 1}, reads[0]};
    }
  }
}

// True if the access `earlier` is ordered before the current access of this thread.
bool Simulator::ordered(const Stamp& earlier, bool is_shared) const {
  if (is_shared && earlier.thread < block_first_) return true;
  if (earlier.thread < launch_first_) return order_.is_before(earlier.thread);
  if (earlier.thread < block_first_) return false;
  const auto other = earlier.thread - block_first_;
  const auto me = static_cast<std::uint32_t>(current->index);
  if (other == me || earlier.clock <= at_barrier_[other]) return true;
  return other / kWarp == me / kWarp && earlier.clock <= current->seen[other % kWarp];
}

void Simulator::check(Cell& cell, bool is_write, const Region& region, const void* caller) {
  const Stamp now{block_first_ + static_cast<std::uint32_t>(current->index), current->clock};
  const auto race = [&](const char* mine, const char* others, const Stamp& stamp) {
    std::ostringstream out;
    out << mine << ' ' << (region.is_shared() ? "shared" : "global") << " memory that ";
    if (stamp.thread >= block_first_)
      out << who(*fibers_[stamp.thread - block_first_]);
    else if (stamp.thread < launch_first_)
      out << "work of another stream";
    else
      out << "a thread of another block";
    out << ' ' << others << ", and nothing orders the two";
    violate(out.str(), caller);
  };
  if (region.is_shared() && !is_write && cell.write.thread < block_first_)
    violate("reads shared memory that no thread of its block wrote", caller);
  if (!ordered(cell.write, region.is_shared()))
    race(is_write ? "writes" : "reads", "wrote", cell.write);
  if (is_write) {
    for (const Stamp& read : cell.reads)
      if (!ordered(read, region.is_shared())) race("writes", "reads", read);
    cell.write = now;
    return;
  }
  auto& [newest, other_warp] = cell.reads;
  const bool same_block = newest.thread >= block_first_;
  if (!same_block || (newest.thread - block_first_) / kWarp != (now.thread - block_first_) / kWarp)
    other_warp = newest;
  newest = now;
}

void Simulator::check_static_shared(const void* address, std::size_t bytes, const void* caller) {
  const auto at =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - static_shared_->begin());
  auto next = std::upper_bound(variables_.begin(), variables_.end(), at,
                               [](std::size_t a, const Variable& v) { return a < v.offset; });
  if (next != variables_.begin()) {
    --next;
    if (at + bytes <= next->offset + next->bytes) return;
  }
  violate("leaves a shared array", caller);
}

// The region of an address; nullptr for the thread's own stack, constants and host memory.
Region* Simulator::find(const void* address) {
  if (dynamic_shared_->holds(address)) return dynamic_shared_.get();
  if (static_shared_->holds(address)) return static_shared_.get();
  return device_memory().region(address);
}

void Simulator::in_bounds(const Region& region, const void* address, std::size_t bytes,
                          const char* what, const void* caller) {
  const auto* begin = static_cast<const std::byte*>(address);
  const auto fail = [&](const std::string& where) {
    violate(std::string(what) + ' ' + std::to_string(bytes) + " bytes " + where, caller);
  };
  if (&region == static_shared_.get()) {
    check_static_shared(address, bytes, caller);
  } else if (&region == dynamic_shared_.get()) {
    if (begin + bytes > shared_base_ + dynamic_bytes_)
      fail("at " + std::to_string(begin - shared_base_) + " of " + std::to_string(dynamic_bytes_) +
           " bytes of shared memory");
  } else {
    if (!region.is_in_tensor(address, bytes)) fail(region.place_of(address));
  }
  if (reinterpret_cast<std::uintptr_t>(address) % std::min<std::size_t>(bytes, 16) != 0 &&
      (bytes & (bytes - 1)) == 0)
    fail("at an address that is not a multiple of it");
}

void Simulator::access(const void* address, std::size_t bytes, bool is_write, const void* caller) {
  const Fiber* fiber = current;
  if (fiber == nullptr) return;  // a launcher, on the host
  const auto is_on_stack = [&](const void* p) {
    return p >= static_cast<const void*>(fiber->stack) &&
           p < static_cast<const void*>(fiber->stack + kStackBytes);
  };
  // A launcher of another host thread does not hold device_mutex() while a kernel runs.
  if (!is_on_stack(__builtin_frame_address(0)) || is_on_stack(address)) return;
  Region* region = find(address);
  if (region == nullptr) return;
  in_bounds(*region, address, bytes, is_write ? "writes" : "reads", caller);
  Cell* cells = region->cells(address);
  const Cell before = cells[0];
  check(cells[0], is_write, *region, caller);
  for (std::size_t i = 1; i < bytes; ++i)
    if (cells[i] == before)  // the result for the first byte holds for this one
      cells[i] = cells[0];
    else
      check(cells[i], is_write, *region, caller);
}

}  // namespace simt

// What g++ -fsanitize=thread calls before each access.
#define SIMT_ACCESS(kind, is_write, bytes)                                           \
  extern "C" void __tsan_##kind##bytes(void* address) {                              \
    simt::simulator().access(address, bytes, is_write, __builtin_return_address(0)); \
  }                                                                                  \
  extern "C" void __tsan_unaligned_##kind##bytes(void* address) {                    \
    simt::simulator().access(address, bytes, is_write, __builtin_return_address(0)); \
  }
SIMT_ACCESS(read, false, 1)
SIMT_ACCESS(read, false, 2)
SIMT_ACCESS(read, false, 4)
SIMT_ACCESS(read, false, 8)
SIMT_ACCESS(read, false, 16)
SIMT_ACCESS(write, true, 1)
SIMT_ACCESS(write, true, 2)
SIMT_ACCESS(write, true, 4)
SIMT_ACCESS(write, true, 8)
SIMT_ACCESS(write, true, 16)
#undef SIMT_ACCESS
extern "C" void __tsan_read_range(void* address, unsigned long bytes) {
  simt::simulator().access(address, bytes, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* address, unsigned long bytes) {
  simt::simulator().access(address, bytes, true, __builtin_return_address(0));
}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}

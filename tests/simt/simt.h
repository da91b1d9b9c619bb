// simt: runs CUDA kernels on the CPU. The same .cu files, compiled by g++ with the headers in
// include/ in place of CUDA's, become functions that this simulator calls once for each thread.
//
// A block's threads are fibers: each runs until it waits for others (barrier, shuffle, mma), and
// which one goes on is drawn at random. Blocks run one after the other in random order. A launch is
// done when it returns.
//
// g++'s -fsanitize=thread reports every memory access of the kernels to us instead of to
// ThreadSanitizer: so pointers are plain pointers, and yet each access is checked. A launch throws
// Violation when a thread
//   - reads or writes outside a tensor (or a shared array's block of memory)
//   - reads shared memory that no thread of its block wrote
//   - touches bytes that another thread wrote, or writes what another one read, with nothing to
//     order the two: no __syncthreads between them, nor __syncwarp if they share a warp
//   - waits at a barrier, shuffle or mma that another thread never reaches, names lanes in its mask
//     that are not there, or shuffles from a lane outside the mask
// and so do a launch and a copy that touch bytes of the device that work of another stream wrote,
// or write what it read, with no event, nor a host that waited, to order the two (Order). What it
// does not see: accesses of inline PTX beyond the wrappers of kernels/ptx.cuh, and the timing of
// anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "core/function_ref.h"

namespace simt {

class Violation : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

struct Extent {
  unsigned x = 1, y = 1, z = 1;
  Extent() = default;
  Extent(unsigned x_size, unsigned y_size = 1, unsigned z_size = 1)  // NOLINT: as CUDA's dim3
      : x(x_size), y(y_size), z(z_size) {}
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

// What the thread that runs now is. Only inside a kernel.
struct Thread {
  Index thread, block;
  Extent block_size, grid_size;
};
const Thread& self();

// Calls `body` once for each thread.
void launch(Extent grid, Extent block, std::size_t dynamic_shared_bytes,
            lockstep::FunctionRef<void()> body);
void set_seed(std::uint64_t seed);  // of the order in which threads run
// Dynamic shared memory of a block: 227 KiB, as on an H100, until it is set.
void set_most_shared_bytes(std::size_t bytes);
std::size_t most_shared_bytes();

// Does the work of a stream (a cudaStream_t) now; while the calling thread captures that stream,
// whenever the graph is launched instead. Violation while it captures another one.
void submit(const void* stream, std::function<void()> work);
// What gpu::begin_range and end_range were asked for by the calling thread.
struct Ranges {
  int open = 0, most_open = 0;
  std::map<std::string, int> begun;  // by name
};
Ranges& ranges();
// The device's clock, which events read. A launch takes 1 us, whatever it does.
void pass_time(std::uint64_t nanoseconds);
std::uint64_t device_nanoseconds();

// Of the calling thread's block.
std::byte* dynamic_shared();
void syncthreads();
int syncthreads_count(bool predicate);

// Of the calling thread's warp. `mask`: the lanes that call, which must all do so.
void syncwarp(unsigned mask);
// Each lane gives `bytes` (at most 64) bytes at `value`; once all have, each may look at the
// others' until its next exchange. `what` names the instruction in messages.
class Exchange {
 public:
  Exchange(unsigned mask, const char* what, const void* value, std::size_t bytes);
  const std::byte* of(int lane) const;  // Violation when the lane is not in the mask
  template <class T>
  const T& as(int lane) const {
    return *reinterpret_cast<const T*>(of(lane));
  }

 private:
  unsigned mask_;
  const char* what_;
  const std::byte* values_;
};
int lane();

// Accesses by wrappers of PTX, which g++ does not see; they are checked like all others.
void read(const void* address, std::size_t bytes);
void write(void* address, std::size_t bytes);
// An atomic operation: it may meet others, but must stay in bounds.
void atomic(void* address, std::size_t bytes);

// cp.async: the bytes arrive when a wait says so; until then the destination holds noise.
void copy_async(void* shared, const void* global, std::size_t bytes, std::size_t from_global);
void commit_copies();
void wait_copies(int groups_in_flight);

// Device memory: outside kernels and copies nothing can touch it.
std::byte* allocate_device(std::size_t bytes);  // nullptr: more than the simulated GPU has
std::byte* allocate_pinned(std::size_t bytes);
void release(std::byte* memory);
// A tensor lives in these bytes of device memory, filled with NaNs at first, so that what is read
// before it is written shows; the tensors that begin in these bytes are no more.
void tensor_begins(std::byte* memory, std::size_t bytes);
void tensors_end(std::byte* memory, std::size_t bytes);
std::size_t device_bytes();  // environment LOCKSTEP_SIMT_MIB (default 16384), in MiB
std::size_t free_device_bytes();
// Violation when the host side is not pinned.
void copy(void* to, const void* from, std::size_t bytes);

}  // namespace simt

// simt: runs CUDA kernels on the CPU. The same .cu files, compiled by g++ with the headers in
// include/ in place of CUDA's, become functions that this simulator calls once for each thread.
//
// Threads of a block are fibers: each runs until it waits for others (barrier, shuffle, mma), and
// then a random one continues. Blocks run one after the other in random order. A launch is done
// when it returns.
//
// g++'s -fsanitize=thread reports every memory access of the kernels to the simulator instead of to
// ThreadSanitizer: pointers are plain pointers, and yet each access is checked. A launch throws
// Violation if a thread
//   - reads or writes outside a tensor (or a shared array's block of memory)
//   - reads shared memory that no thread of its block wrote
//   - touches bytes that another thread wrote, or writes what another one read, with nothing to
//     order the two: no __syncthreads between them, nor __syncwarp if they share a warp
//   - waits at a barrier, shuffle or mma that another thread never reaches, names lanes in its mask
//     that do not exist, or shuffles from a lane outside the mask
// A launch or a copy also throws if it accesses bytes of the device that work of another stream
// wrote, or writes bytes that it read, and neither an event nor a wait of the host orders the two
// (Order). The simulator does not see accesses of inline PTX outside the wrappers of
// kernels/ptx.cuh, and no timing.
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

// The indices of the running thread, inside a kernel.
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

// Does the work of a stream (a cudaStream_t) now. While the calling thread captures that stream,
// each launch of the graph does the work instead. Throws Violation while the thread captures
// another stream.
void submit(const void* stream, std::function<void()> work);
// The calls of gpu::begin_range and end_range by the calling thread.
struct Ranges {
  int open = 0, most_open = 0;
  std::map<std::string, int> begun;  // by name
};
Ranges& ranges();
// The clock of the device, which events read. Each launch takes 1 us.
void pass_time(std::uint64_t nanoseconds);
std::uint64_t device_nanoseconds();

// The dynamic shared memory of the calling thread's block.
std::byte* dynamic_shared();
void syncthreads();
int syncthreads_count(bool predicate);

// __syncwarp for the calling thread's warp. All lanes of `mask` must call it.
void syncwarp(unsigned mask);
// Each lane publishes `bytes` (at most 64) bytes at `value`. When all have, each may read those of
// the others until its next exchange. `what` names the instruction in messages.
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

// cp.async: the bytes arrive at a wait; until then the destination holds noise.
void copy_async(void* shared, const void* global, std::size_t bytes, std::size_t from_global);
void commit_copies();
void wait_copies(int groups_in_flight);

// Device memory: only kernels and copies can access it.
std::byte* allocate_device(std::size_t bytes);  // nullptr: more than the simulated GPU has
std::byte* allocate_pinned(std::size_t bytes);
void release(std::byte* memory);
// Begins a tensor in these bytes of device memory, and ends those that began there. The tensor is
// filled with NaNs, which show reads before a write.
void tensor_begins(std::byte* memory, std::size_t bytes);
void tensors_end(std::byte* memory, std::size_t bytes);
std::size_t device_bytes();  // environment LOCKSTEP_SIMT_MIB (default 16384), in MiB
std::size_t free_device_bytes();
// Violation when the host side is not pinned.
void copy(void* to, const void* from, std::size_t bytes);

}  // namespace simt

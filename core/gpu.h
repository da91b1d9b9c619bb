// What the engine asks of the CUDA runtime outside kernels, as functions of plain types, so that no
// CUDA header is needed above core/. A build without CUDA links gpu_none.cpp in place of
// gpu_cuda.cpp: there is then no GPU, and nothing else here is called.
//
// One binary starts on any machine: devices() finds out, once, what can be used, and why not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct CUstream_st;  // CUDA's own handle types
struct CUevent_st;
struct CUgraphExec_st;

namespace lockstep::gpu {

struct Devices {
  int count = 0;
  std::string why_not;  // where count is 0: one sentence that says what to do
};
Devices devices();

struct Properties {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};
Properties properties(int device);
std::string pci_bus_id(int device);  // "0000:1B:00.0": its one name for all programs
// Whether `device` reaches `other` by links that carry atomic operations: NVLink's do, PCIe's do
// not (cudaDevP2PAttrNativeAtomicSupported).
bool are_linked(int device, int other);
std::string driver_version();  // the newest CUDA that the driver is for: "13.0"

// Whether code compiled for `architectures` ("80;90a", as LOCKSTEP_CUDA_ARCHITECTURES) runs on a
// GPU of this compute capability: N runs on later minor versions of its major one, Na only on N,
// Nf on its family, the later minor versions.
bool covers(const std::string& architectures, int major, int minor);

// Makes `device` the one that this thread's calls mean. Throws ConfigError where it is not there or
// this build has no code for it. The first call clears the environment variables by which NVIDIA's
// libraries compute other bits, with a warning each; no other thread may use the environment then.
void use(int device);
const std::vector<std::string>& cleared_variables();  // their names
void use_again(int device);  // where another thread was told to use it already

std::int64_t free_bytes();                       // of the device in use
std::byte* allocate(std::int64_t bytes);         // nullptr where there is not enough
std::byte* allocate_pinned(std::int64_t bytes);  // host memory that the GPU reads directly
void release(std::byte* memory) noexcept;
void release_pinned(std::byte* memory) noexcept;

// A range of the calling thread's time that profilers show (NVTX). `name` is kept by address.
void begin_range(const char* name);
void end_range();

// For tools that check memory accesses (tests/simt): a tensor of an arena lives in these bytes,
// from now on nothing does. Arenas leave this many unused bytes behind each tensor.
void tensor_begins(std::byte* memory, std::int64_t bytes) noexcept;
void tensors_end(std::byte* memory, std::int64_t bytes) noexcept;
std::int64_t bytes_between_tensors();

CUstream_st* create_stream();
void destroy(CUstream_st* stream) noexcept;
void synchronize(CUstream_st* stream);

// One that is timed can be the end of seconds_between; one that is not is cheaper, and a thread
// that waits for it sleeps.
CUevent_st* create_event(bool timed);
void destroy(CUevent_st* event) noexcept;
void record(CUevent_st* event, CUstream_st* stream);
void wait(CUstream_st* stream, CUevent_st* event);
void synchronize(CUevent_st* event);
bool is_done(CUevent_st* event);
double seconds_between(CUevent_st* begin, CUevent_st* end);  // both done

// Between the first two, what this thread gives the stream is not done but recorded, and the host
// may not wait for it; it is done, in the same order, whenever the graph is launched.
void begin_capture(CUstream_st* stream);
CUgraphExec_st* end_capture(CUstream_st* stream);  // throws where a call was not one to record
void abandon_capture(CUstream_st* stream) noexcept;
void launch(CUgraphExec_st* graph, CUstream_st* stream);
void destroy(CUgraphExec_st* graph) noexcept;

// Between device and pinned memory, in either direction, or on the device; in the stream's order.
void copy(std::byte* to, const std::byte* from, std::int64_t bytes, CUstream_st* stream);

}  // namespace lockstep::gpu

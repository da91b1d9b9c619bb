// gpu:: wraps the CUDA runtime calls outside kernels as functions of plain types, so that only
// core/ needs CUDA headers. A build without CUDA links gpu_none.cpp instead of gpu_cuda.cpp: it has
// no GPU, and no other function here is called.
//
// One binary starts on any host: devices() detects once which GPUs are usable, or why none is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct CUstream_st;  // CUDA's handle types
struct CUevent_st;
struct CUgraphExec_st;

namespace lockstep::gpu {

struct Devices {
  int count = 0;
  std::string why_not;  // if count is 0: the reason and the remedy, in one sentence
};
Devices devices();

struct Properties {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};
Properties properties(int device);
std::string pci_bus_id(int device);  // "0000:1B:00.0": the same in all programs
// True if `device` reaches `other` by links with native atomics: NVLink has them, PCIe does not
// (cudaDevP2PAttrNativeAtomicSupported).
bool are_linked(int device, int other);
std::string driver_version();  // newest CUDA version that the driver supports: "13.0"

// True if code compiled for `architectures` ("80;90a", as LOCKSTEP_CUDA_ARCHITECTURES) runs on a
// GPU of this compute capability. N and Nf run on the same and later minor versions of one major
// version, Na only on N.
bool covers(const std::string& architectures, int major, int minor);

// Selects `device` for this thread's calls. Throws ConfigError if it does not exist or this build
// has no code for it. The first call unsets environment variables that change results of NVIDIA's
// libraries, and logs a warning for each. No other thread may use the environment meanwhile.
void use(int device);
const std::vector<std::string>& cleared_variables();  // names of the variables that were unset
void use_again(int device);  // cheaper use() for a device that another thread already selected

std::int64_t free_bytes();                       // free memory of the selected device
std::byte* allocate(std::int64_t bytes);         // nullptr if there is not enough memory
std::byte* allocate_pinned(std::int64_t bytes);  // host memory that the GPU reads directly
void release(std::byte* memory) noexcept;
void release_pinned(std::byte* memory) noexcept;

// Marks a range of the calling thread's time for profilers (NVTX). `name` must stay valid.
void begin_range(const char* name);
void end_range();

// For tools that check memory accesses (tests/simt): these bytes hold a tensor, or no tensor any
// more. Arenas leave bytes_between_tensors() unused bytes after each tensor.
void tensor_begins(std::byte* memory, std::int64_t bytes) noexcept;
void tensors_end(std::byte* memory, std::int64_t bytes) noexcept;
std::int64_t bytes_between_tensors();

// is_urgent: its kernels get free multiprocessors before those of other streams.
CUstream_st* create_stream(bool is_urgent);
void destroy(CUstream_st* stream) noexcept;
void synchronize(CUstream_st* stream);

// A timed event can be an argument of seconds_between. An untimed one is cheaper, and a thread that
// waits for it sleeps.
CUevent_st* create_event(bool timed);
void destroy(CUevent_st* event) noexcept;
void record(CUevent_st* event, CUstream_st* stream);
void wait(CUstream_st* stream, CUevent_st* event);
void synchronize(CUevent_st* event);
bool is_done(CUevent_st* event);
double seconds_between(CUevent_st* begin, CUevent_st* end);  // both must be done

// Between begin_capture and end_capture, work that this thread enqueues is recorded instead of run,
// and the host must not wait for it. launch() runs the recorded work in the same order.
void begin_capture(CUstream_st* stream);
CUgraphExec_st* end_capture(CUstream_st* stream);  // throws if a call cannot be recorded
void abandon_capture(CUstream_st* stream) noexcept;
void launch(CUgraphExec_st* graph, CUstream_st* stream);
void destroy(CUgraphExec_st* graph) noexcept;

// Copies between device and pinned memory in either direction, or on the device, in stream order.
void copy(std::byte* to, const std::byte* from, std::int64_t bytes, CUstream_st* stream);

}  // namespace lockstep::gpu

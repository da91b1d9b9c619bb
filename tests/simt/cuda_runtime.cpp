// The CUDA runtime of tests/simt, and the part of core/gpu.h that registers the bytes of tensors.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/gpu.h"
#include "tests/simt/device_memory.h"
#include "tests/simt/nccl.h"
#include "tests/simt/order.h"

namespace {

std::atomic<int> driver = 13000;

// The work of a captured stream, in order.
struct Graph {
  std::vector<std::function<void()>> work;
};

// The stream and the graph that the calling thread captures.
thread_local const void* captured_stream = nullptr;
thread_local Graph* captured = nullptr;

// Does `work` now, or at each launch of the graph that is being captured.
void now_or_captured(std::function<void()> work) {
  if (captured == nullptr) return work();
  captured->work.push_back(std::move(work));
}

// All work is done when its call returns. Order separately checks the order by streams and events.
// An event stores its time, its graph and the work before it.
struct EventTime {
  std::uint64_t nanoseconds = 0;
  const Graph* graph = nullptr;
  simt::Clock before;
};

// All that runs during the lifetime of a Work is one work of the stream. Other host threads wait.
class Work {
 public:
  explicit Work(const void* stream) : lock_(simt::device_mutex()) { simt::order().begin(stream); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() { simt::order().end(); }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};
void host_waits(const void* stream) {
  const std::lock_guard lock(simt::device_mutex());
  simt::order().host_waits(simt::order().of(stream));
}

EventTime& time_of(cudaEvent_t event) {
  return *reinterpret_cast<EventTime*>(event);
}

Graph* graph_of(void* handle) {
  return static_cast<Graph*>(handle);
}

}  // namespace

void simt::set_driver(int version) {
  driver = version;
}

void simt::submit(const void* stream, std::function<void()> work) {
  if (captured != nullptr && stream != captured_stream)
    throw Violation("simt: work for a stream while another one is captured");
  const Work running(stream);
  now_or_captured(std::move(work));
}

simt::Ranges& simt::ranges() {
  thread_local Ranges ranges;
  return ranges;
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorStreamCaptureUnsupported: return "not possible while a stream is captured";
    case cudaErrorStreamCaptureIsolation: return "waits for what is not captured";
    case cudaErrorCapturedEvent: return "the event is a part of a graph";
    default: return "an error of the simulated GPU";
  }
}
const char* cudaGetErrorName(cudaError_t /*error*/) {
  return "cudaErrorSimulated";
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  std::strcpy(properties->name, "simulated GPU");
  properties->totalGlobalMem = simt::device_bytes();
  properties->major = 9;
  properties->multiProcessorCount = 4;  // few, so that small tests have several waves of blocks
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int /*device*/) {
  *value = static_cast<int>(simt::most_shared_bytes());
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr /*attribute*/, int /*from*/,
                                      int /*to*/) {
  *value = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int /*device*/) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:5A:00.0");
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int /*device*/) {
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = simt::free_device_bytes();
  *total = simt::device_bytes();
  return cudaSuccess;
}
// For 0 bytes CUDA succeeds and does not change the pointer.
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (bytes == 0) return cudaSuccess;
  *memory = simt::allocate_device(bytes);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  if (captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (bytes == 0) return cudaSuccess;
  *memory = simt::allocate_pinned(bytes);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  simt::release(static_cast<std::byte*>(memory));
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  simt::release(static_cast<std::byte*>(memory));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                         int /*priority*/) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  host_waits(stream);  // its address may become that of another one
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  host_waits(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (time_of(event).graph != captured) return cudaErrorStreamCaptureIsolation;
  const std::lock_guard lock(simt::device_mutex());
  simt::order().wait(stream, time_of(event).before);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = reinterpret_cast<cudaEvent_t>(new EventTime);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &time_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(simt::device_mutex());
  time_of(event) = {simt::device_nanoseconds(), captured, simt::order().of(stream)};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (time_of(event).graph != nullptr) return cudaErrorCapturedEvent;
  const std::lock_guard lock(simt::device_mutex());
  simt::order().host_waits(time_of(event).before);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;  // each call has done all of its work when it returns
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (time_of(begin).graph != nullptr || time_of(end).graph != nullptr)
    return cudaErrorCapturedEvent;
  *milliseconds = static_cast<float>(time_of(end).nanoseconds - time_of(begin).nanoseconds) / 1e6f;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  simt::submit(stream, [=] { simt::copy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  if (captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  captured_stream = stream;
  captured = new Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (captured == nullptr || stream != captured_stream) return cudaErrorStreamCaptureUnsupported;
  captured_stream = nullptr;
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(captured, nullptr));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Graph(*graph_of(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph_of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph_of(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  if (captured != nullptr) return cudaErrorStreamCaptureUnsupported;
  const Work running(stream);
  for (const auto& work : graph_of(graph)->work)
    work();
  return cudaSuccess;
}

namespace lockstep::gpu {

void begin_range(const char* name) {
  simt::Ranges& ranges = simt::ranges();
  ++ranges.begun[name];
  ranges.most_open = std::max(ranges.most_open, ++ranges.open);
}
void end_range() {
  --simt::ranges().open;
}

// Tensors of captured work begin and end each time that the graph runs.
void tensor_begins(std::byte* memory, std::int64_t bytes) noexcept {
  now_or_captured([=] { simt::tensor_begins(memory, static_cast<std::size_t>(bytes)); });
}
void tensors_end(std::byte* memory, std::int64_t bytes) noexcept {
  now_or_captured([=] { simt::tensors_end(memory, static_cast<std::size_t>(bytes)); });
}
std::int64_t bytes_between_tensors() {
  return 256;
}

}  // namespace lockstep::gpu

// The CUDA runtime of tests/simt, and the part of core/gpu.h that tells which bytes are a tensor's.
#include <cstring>

#include <cuda_runtime_api.h>

#include "core/gpu.h"

namespace {

// Streams and events carry nothing: all work is done when the call that made it returns. An event
// remembers its time.
struct EventTime {
  std::uint64_t nanoseconds = 0;
};

EventTime& time_of(cudaEvent_t event) {
  return *reinterpret_cast<EventTime*>(event);
}

}  // namespace

const char* cudaGetErrorString(cudaError_t /*error*/) {
  return "an error of the simulated GPU";
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
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  std::strcpy(properties->name, "simulated GPU");
  properties->totalGlobalMem = std::size_t{16} << 30;
  properties->major = 9;
  properties->multiProcessorCount = 4;  // few, so that small tests have several waves of blocks
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int /*device*/) {
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = simt::free_device_bytes();
  *total = std::size_t{16} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = simt::allocate_device(bytes);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
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
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t /*event*/,
                                unsigned /*flags*/) {
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
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t /*stream*/) {
  time_of(event).nanoseconds = simt::device_nanoseconds();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = static_cast<float>(time_of(end).nanoseconds - time_of(begin).nanoseconds) / 1e6f;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t /*stream*/) {
  simt::copy(to, from, bytes);
  return cudaSuccess;
}

namespace lockstep::gpu {

void begin_range(const char* /*name*/) {}
void end_range() {}

void tensor_begins(std::byte* memory, std::int64_t bytes) noexcept {
  simt::tensor_begins(memory, static_cast<std::size_t>(bytes));
}
void tensors_end(std::byte* memory, std::int64_t bytes) noexcept {
  simt::tensors_end(memory, static_cast<std::size_t>(bytes));
}
std::int64_t bytes_between_tensors() {
  return 256;
}

}  // namespace lockstep::gpu

#include <algorithm>
#include <cstdlib>
#include <unistd.h>
#ifndef LOCKSTEP_SIMT
#include <nvtx3/nvToolsExt.h>
#endif

#include <cuda_runtime_api.h>

#include "core/cuda_check.h"
#include "core/gpu.h"
#include "core/log.h"

namespace lockstep {

void fail_cuda(int error, const char* call, const char* file, int line) {
  char host[256] = "?";
  gethostname(host, sizeof host - 1);
  const auto e = static_cast<cudaError_t>(error);
  fail(str(call, ": ", cudaGetErrorString(e), " (", cudaGetErrorName(e), "), on host ", host), file,
       line);
}

namespace gpu {
namespace {

// 13020 is 13.2.
std::string version(int number) {
  return str(number / 1000, ".", number % 1000 / 10);
}

Devices find_devices() {
  int count = 0;
  const auto error = cudaGetDeviceCount(&count);
  cudaGetLastError();  // clears the error, so that a later call does not report it
  if (error == cudaSuccess && count > 0) return {count, {}};
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (error == cudaErrorStubLibrary)
    return {0,
            "libcuda.so.1 is the CUDA toolkit's stub for linking; remove its directory from "
            "LD_LIBRARY_PATH and install the NVIDIA driver"};
  if (error == cudaErrorInsufficientDriver && driver > 0)
    return {
        0, str("the NVIDIA driver supports CUDA up to ", version(driver), ", but this build needs ",
               version(runtime), "; update the driver, or build with an older CUDA toolkit")};
  if (error == cudaErrorInsufficientDriver) return {0, "no NVIDIA driver found; install one"};
  if (error == cudaErrorNoDevice || error == cudaSuccess)
    return {0, "the NVIDIA driver found no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES"};
  return {0, str("the NVIDIA driver failed to start: ", cudaGetErrorString(error), " (",
                 cudaGetErrorName(error), "); check nvidia-smi and dmesg")};
}

}  // namespace

Devices devices() {
  static const Devices found = find_devices();
  return found;
}

Properties properties(int device) {
  cudaDeviceProp p{};
  CUDA_CHECK(cudaGetDeviceProperties(&p, device));
  return {.name = p.name,
          .major = p.major,
          .minor = p.minor,
          .multiprocessors = p.multiProcessorCount,
          .memory_bytes = static_cast<std::int64_t>(p.totalGlobalMem)};
}

std::string pci_bus_id(int device) {
  char id[16] = "";
  CUDA_CHECK(cudaDeviceGetPCIBusId(id, sizeof id, device));
  return id;
}

bool are_linked(int device, int other) {
  int reaches = 0, with_atomics = 0;
  CUDA_CHECK(cudaDeviceGetP2PAttribute(&reaches, cudaDevP2PAttrAccessSupported, device, other));
  CUDA_CHECK(
      cudaDeviceGetP2PAttribute(&with_atomics, cudaDevP2PAttrNativeAtomicSupported, device, other));
  return reaches != 0 && with_atomics != 0;
}

std::string driver_version() {
  int number = 0;
  CUDA_CHECK(cudaDriverGetVersion(&number));
  return version(number);
}

namespace {

// Variables that change results. cuBLAS: TF32, and emulation of fp32 matmuls by bf16. cuDNN and its
// frontend: memory limit of deterministic attention backward, rescaling of the softmax, and
// excluded engines. Checked with cuDNN frontend 1.32 and CUDA 13.0.
constexpr const char* kVariables[] = {
    "NVIDIA_TF32_OVERRIDE",      "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY", "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT",
    "CUDNN_RESCALE_THRESHOLD",   "CUDNN_ERRATA_JSON_FILE",
};

std::vector<std::string> clear_variables() {
  std::vector<std::string> cleared;
  for (const char* name : kVariables) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    log_warning(name, "=", value, " in the environment is ignored: it would change results");
    unsetenv(name);
    cleared.emplace_back(name);
  }
  return cleared;
}

}  // namespace

const std::vector<std::string>& cleared_variables() {
  static const std::vector<std::string> cleared = clear_variables();
  return cleared;
}

void use(int device) {
  cleared_variables();
  // Streams of compute, copies and each NCCL group share 8 hardware queues by default, and would
  // wait for each other. CUDA reads the variable when it makes the context.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const auto found = devices();
  if (found.count == 0) throw ConfigError(str("no GPU can be used: ", found.why_not));
  if (device < 0 || device >= found.count)
    throw ConfigError(str("GPU ", device, " does not exist; usable GPUs: ", found.count));
  const auto p = properties(device);
  if (!covers(LOCKSTEP_CUDA_ARCHITECTURES, p.major, p.minor))
    throw ConfigError(str("GPU ", device, " (", p.name, ") has compute capability ", p.major, ".",
                          p.minor, "; this build has code for ", LOCKSTEP_CUDA_ARCHITECTURES,
                          "; rebuild with -DLOCKSTEP_CUDA_ARCHITECTURES=", p.major, p.minor,
                          p.major >= 9 ? "a" : ""));
  CUDA_CHECK(cudaSetDevice(device));
}

void use_again(int device) {
  CUDA_CHECK(cudaSetDevice(device));
}

std::int64_t free_bytes() {
  std::size_t free = 0, total = 0;
  CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

std::byte* allocate(std::int64_t bytes) {
  void* memory = nullptr;
  const auto error = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  CUDA_CHECK(error);
  return static_cast<std::byte*>(memory);
}

std::byte* allocate_pinned(std::int64_t bytes) {
  void* memory = nullptr;
  const auto error = cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  CUDA_CHECK(error);
  return static_cast<std::byte*>(memory);
}

void release(std::byte* memory) noexcept {
  cudaFree(memory);
}
void release_pinned(std::byte* memory) noexcept {
  cudaFreeHost(memory);
}

#ifndef LOCKSTEP_SIMT  // tests/simt has other definitions
void begin_range(const char* name) {
  nvtxRangePushA(name);
}
void end_range() {
  nvtxRangePop();
}
void tensor_begins(std::byte* /*memory*/, std::int64_t /*bytes*/) noexcept {}
void tensors_end(std::byte* /*memory*/, std::int64_t /*bytes*/) noexcept {}
std::int64_t bytes_between_tensors() {
  return 0;
}
#endif

CUstream_st* create_stream(bool is_urgent) {
  cudaStream_t stream = nullptr;
  int least = 0, greatest = 0;  // lower numbers are more urgent
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CUDA_CHECK(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, is_urgent ? greatest : least));
  return stream;
}

void destroy(CUstream_st* stream) noexcept {
  cudaStreamDestroy(stream);
}

void synchronize(CUstream_st* stream) {
  CUDA_CHECK(cudaStreamSynchronize(stream));
}

CUevent_st* create_event(bool timed) {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(
      &event, timed ? cudaEventDefault : cudaEventDisableTiming | cudaEventBlockingSync));
  return event;
}

void destroy(CUevent_st* event) noexcept {
  cudaEventDestroy(event);
}

void record(CUevent_st* event, CUstream_st* stream) {
  CUDA_CHECK(cudaEventRecord(event, stream));
}

void wait(CUstream_st* stream, CUevent_st* event) {
  CUDA_CHECK(cudaStreamWaitEvent(stream, event, 0));
}

void synchronize(CUevent_st* event) {
  CUDA_CHECK(cudaEventSynchronize(event));
}

// An event of a failed device counts as done, because the device does no more work.
bool is_done(CUevent_st* event) {
  if (cudaEventQuery(event) != cudaErrorNotReady) return true;
  cudaGetLastError();  // clears the error, so that a later call does not report it
  return false;
}

double seconds_between(CUevent_st* begin, CUevent_st* end) {
  float milliseconds = 0;
  CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  return static_cast<double>(milliseconds) / 1e3;
}

// ThreadLocal: the capture does not restrict other threads, which wait for their own events.
void begin_capture(CUstream_st* stream) {
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

CUgraphExec_st* end_capture(CUstream_st* stream) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t made = nullptr;
  const auto error = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  CUDA_CHECK(error);
  return made;
}

void abandon_capture(CUstream_st* stream) noexcept {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();  // clears the error, so that a later call does not report it
}

void launch(CUgraphExec_st* graph, CUstream_st* stream) {
  CUDA_CHECK(cudaGraphLaunch(graph, stream));
}

void destroy(CUgraphExec_st* graph) noexcept {
  cudaGraphExecDestroy(graph);
}

void copy(std::byte* to, const std::byte* from, std::int64_t bytes, CUstream_st* stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream));
}

}  // namespace gpu
}  // namespace lockstep

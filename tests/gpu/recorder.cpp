// Replaces the CUDA runtime and cuBLASLt (LD_PRELOAD) on a host without a GPU. A program that is
// built with CUDA then runs as on one H200, or on LOCKSTEP_RECORD_GPUS of them. The rank
// LOCKSTEP_RECORD_ODD_RANK has an H100. Kernels compute nothing. Device memory is host memory full
// of zeros; copies are made.
//
// Each call is a line of the file LOCKSTEP_RECORD: thread, call, arguments. Under mpirun the name
// of the file ends with .RANK. record_test.py reads the lines.
#include "tests/gpu/recorder.h"

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

// The rank in the variables of mpirun or torchrun.
static const char* rank_here() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr ? rank : std::getenv("RANK");
}

std::string record_name() {
  const char* rank = rank_here();
  return std::getenv("LOCKSTEP_RECORD") +
         (rank == nullptr ? std::string() : std::string(".") + rank);
}

namespace {

struct Recorder {
  std::mutex mutex;
  std::map<const void*, std::string> kernels;            // by the address of their stub on the host
  std::map<cublasLtMatmulDesc_t, std::int32_t> targets;  // multiprocessors of a matmul, if set
  std::FILE* file = std::fopen(record_name().c_str(), "w");
};
Recorder& recorder() {
  static auto* r = new Recorder;  // lives longer than functions that run at exit
  return *r;
}

}  // namespace

void* device_memory(std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

void record(const char* format, ...) {
  auto& r = recorder();
  const std::lock_guard lock(r.mutex);
  if (r.file == nullptr) return;
  std::fprintf(r.file, "%ld ", syscall(SYS_gettid) - getpid());
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(r.file, format, arguments);
  va_end(arguments);
  std::fputc('\n', r.file);
  std::fflush(r.file);
}

std::uintptr_t next_number() {
  static std::atomic<std::uintptr_t> last{0};
  return ++last;
}

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  auto& r = recorder();
  const std::lock_guard lock(r.mutex);
  r.kernels[stub] = name;
}

// LOCKSTEP_RECORD_DRIVER: the version of a driver that is too old; 0: a driver that finds no GPU.
cudaError_t cudaGetDeviceCount(int* count) {
  const char* driver = std::getenv("LOCKSTEP_RECORD_DRIVER");
  const char* gpus = std::getenv("LOCKSTEP_RECORD_GPUS");
  *count = driver != nullptr ? 0 : gpus == nullptr ? 1 : std::atoi(gpus);
  if (driver == nullptr) return cudaSuccess;
  return std::atoi(driver) > 0 ? cudaErrorInsufficientDriver : cudaErrorNoDevice;
}
cudaError_t cudaDriverGetVersion(int* version) {
  const char* driver = std::getenv("LOCKSTEP_RECORD_DRIVER");
  *version = driver == nullptr ? CUDART_VERSION : std::atoi(driver);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::memset(p, 0, sizeof *p);
  const char *rank = rank_here(), *odd = std::getenv("LOCKSTEP_RECORD_ODD_RANK");
  const bool is_odd = rank != nullptr && odd != nullptr && std::string_view(rank) == odd;
  std::strcpy(p->name, is_odd ? "NVIDIA H100" : "NVIDIA H200");
  p->totalGlobalMem = std::size_t{140} << 30;
  const char* capability = std::getenv("LOCKSTEP_RECORD_CAPABILITY");
  p->major = capability != nullptr ? std::atoi(capability) : 9;
  p->multiProcessorCount = 132;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  thread_local int in_use = 0;
  if (device != in_use) record("cudaSetDevice %d", device);
  in_use = device;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
const char* cudaGetErrorName(cudaError_t) {
  return "cudaErrorRecorded";
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error of the recorder";
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    default: *value = 227 << 10;  // of a block's shared memory
  }
  return cudaSuccess;
}
// If the environment says so, only pairs of neighbours have links. All GPUs reach each other.
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  const char* pairs = std::getenv("LOCKSTEP_RECORD_PAIRS");
  *value = attribute == cudaDevP2PAttrAccessSupported || (pairs != nullptr && from / 2 == to / 2);
  return cudaSuccess;
}
// The ids of tests/simt/nvml.cpp, and further ones.
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  constexpr std::array kBuses = {0x1B, 0x5A, 0x9A, 0xDB, 0xE1, 0xE2, 0xE3, 0xE4};
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0",
                kBuses.at(static_cast<std::size_t>(device)));
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{140} << 30;
  return cudaSuccess;
}
// Like those of CUDA: for 0 bytes they succeed and do not change the pointer.
cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  *p = device_memory(bytes);
  record("cudaMalloc %p %zu", *p, bytes);
  return *p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  if (bytes == 0) return cudaSuccess;
  *p = device_memory(bytes);
  record("cudaHostAlloc %p %zu", *p, bytes);
  return *p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  record("cudaFree %p", p);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) {
  record("cudaFreeHost %p", p);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  *stream = next_handle<cudaStream_t>();
  record("cudaStreamCreateWithPriority %p %d", static_cast<void*>(*stream), priority);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  record("cudaStreamSynchronize %p", static_cast<void*>(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  record("cudaStreamWaitEvent %p %p", static_cast<void*>(stream), static_cast<void*>(event));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = next_handle<cudaEvent_t>();
  record("cudaEventCreateWithFlags %p %u", static_cast<void*>(*event), flags);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  record("cudaEventRecord %p %p", static_cast<void*>(event), static_cast<void*>(stream));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  record("cudaEventSynchronize %p", static_cast<void*>(event));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  static const char* rank = rank_here();
  static std::atomic<int> asked{0};
  *milliseconds = 1.0f;  // ranks of a run measure different algorithms as the fastest
  if (rank != nullptr) *milliseconds += static_cast<float>(++asked * (std::atoi(rank) + 2) % 7);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  record("cudaMemcpyAsync %p %p %p %zu", static_cast<void*>(stream), to, from, bytes);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
// Records when the host reads weights or a state.
int open(const char* path, int flags, ...) {
  static const auto real = reinterpret_cast<decltype(&open)>(dlsym(RTLD_NEXT, "open"));
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if ((flags & O_ACCMODE) == O_RDONLY && std::string_view(path).ends_with(".safetensors"))
    record("load");
  return real(path, flags, mode);
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* stub, void**) {
  record("launch %p %s %u,%u,%u %u,%u,%u %zu", static_cast<void*>(c->stream),
         recorder().kernels[stub].c_str(), c->gridDim.x, c->gridDim.y, c->gridDim.z, c->blockDim.x,
         c->blockDim.y, c->blockDim.z, c->dynamicSmemBytes);
  return cudaSuccess;
}
// Captured calls are recorded at the capture; a launch of the graph is one line.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  record("cudaStreamBeginCapture %p", static_cast<void*>(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = next_handle<cudaGraph_t>();
  record("cudaStreamEndCapture %p", static_cast<void*>(stream));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t, unsigned long long) {
  *made = next_handle<cudaGraphExec_t>();
  record("cudaGraphInstantiate %p", static_cast<void*>(*made));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  record("cudaGraphLaunch %p %p", static_cast<void*>(stream), static_cast<void*>(graph));
  return cudaSuccess;
}

const char* cublasLtGetStatusString(cublasStatus_t) {
  return "an error of the recorder";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = next_handle<cublasLtHandle_t>();
  record("cublasLtCreate");
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t,
                                        cudaDataType_t) {
  *d = next_handle<cublasLtMatmulDesc_t>();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  if (attribute != CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET) return CUBLAS_STATUS_SUCCESS;
  if (bytes != sizeof(std::int32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  const std::lock_guard lock(recorder().mutex);
  std::memcpy(&recorder().targets[d], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  *l = next_handle<cublasLtMatrixLayout_t>();
  record("layout %p %lu %lu %ld %d", static_cast<void*>(*l), rows, columns, leading, type);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = next_handle<cublasLtMatmulPreference_t>();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int requested,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  record("cublasLtMatmulAlgoGetHeuristic");
  *found = requested < 3 ? requested : 3;
  for (int i = 0; i < *found; ++i) {
    std::memset(results + i, 0, sizeof *results);
    results[i].algo.data[0] = static_cast<std::uint64_t>(i) + 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t*,
                                       cublasLtMatmulHeuristicResult_t* result) {
  record("cublasLtMatmulAlgoCheck");
  std::memset(result, 0, sizeof *result);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void*,
                              const void* a, cublasLtMatrixLayout_t la, const void* b,
                              cublasLtMatrixLayout_t lb, const void*, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  const auto target = [&] {
    const std::lock_guard lock(recorder().mutex);
    return recorder().targets[description];
  }();
  record("cublasLtMatmul %p %p %p:%p %p:%p %p %p:%p %p:%zu %lu %d", static_cast<void*>(stream),
         static_cast<void*>(description), a, static_cast<void*>(la), b, static_cast<void*>(lb), c,
         d, static_cast<void*>(ld), workspace, workspace_bytes,
         algorithm == nullptr ? 0 : algorithm->data[0], target);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

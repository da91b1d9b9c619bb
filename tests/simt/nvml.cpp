// A stand-in for libnvidia-ml.so.1: the GPU 0000:5A:00.0 (that of tests/simt), as H100s are, and
// what NVML's manual says of its functions. LOCKSTEP_NVML=errors: each function but those that find
// the GPU refuses, as in a container or with MIG. LOCKSTEP_NVML=crowded: 100 processes.
// LOCKSTEP_NVML_OLD, when it is compiled: of a driver before 535.
#include <cstdlib>
#include <cstring>
#include <strings.h>
#include <unistd.h>

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6,
              kInsufficientSize = 7;
struct nvmlDevice_st {
  int number;
};
using nvmlDevice_t = nvmlDevice_st*;
struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
};

namespace {

nvmlDevice_st gpu{7};
bool is(const char* mode) {
  const char* set = std::getenv("LOCKSTEP_NVML");
  return set != nullptr && std::strcmp(set, mode) == 0;
}
template <class T>
int give(nvmlDevice_t device, T* to, T value) {
  if (device != &gpu || to == nullptr) return kInvalidArgument;
  if (is("errors")) return kNotSupported;
  *to = value;
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return kSuccess;
}
int nvmlShutdown() {
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  if (strcasecmp(id, "0000:5a:00.0") != 0) return kNotFound;
  *device = &gpu;
  return kSuccess;
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  if (is("errors")) return kNotSupported;
  if (length < 10) return kInsufficientSize;
  std::memcpy(version, "580.65.06", sizeof "580.65.06");
  return kSuccess;
}
int nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned* milliwatts) {
  return give(device, milliwatts, 700000u);
}
int nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned* mhz) {
  return give(device, mhz, type == 1 ? 1755u : 2619u);  // NVML_CLOCK_SM; the memory's
}
int nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  return give(device, milliwatts, 612500u);
}
int nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned* celsius) {
  return sensor == 0 ? give(device, celsius, 64u) : kInvalidArgument;
}
// Power cap; and hardware slowdown, which is a thermal one.
#ifdef LOCKSTEP_NVML_OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
#endif
  return give(device, reasons, 0x4ull | 0x8ull | 0x40ull);
}
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                            nvmlProcessInfo_t* processes) {
  if (device != &gpu || processes == nullptr) return kInvalidArgument;
  if (is("errors")) return kNotSupported;
  constexpr unsigned kNoInstance = ~0u;
  const unsigned there = is("crowded") ? 100 : 3, room = *count;
  *count = there;
  if (room < there) return kInsufficientSize;
  for (unsigned i = 0; i < there; ++i)
    processes[i] = {4240 + i, ~0ull, kNoInstance, kNoInstance};  // NVML_VALUE_NOT_AVAILABLE
  processes[0] = {static_cast<unsigned>(getpid()), 5ull << 30, kNoInstance, kNoInstance};
  processes[2].usedGpuMemory = is("crowded") ? 1000 : 3ull << 29;
  return kSuccess;
}

}  // extern "C"

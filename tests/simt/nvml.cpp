// A stand-in for libnvidia-ml.so.1 with four GPUs like H100s, which NVLink connects. The GPU of
// tests/simt is 0000:5A:00.0. Its functions follow the manual of NVML. LOCKSTEP_NVML =
//   errors: all functions fail, except those that find the GPU, as in a container or with MIG
//   lost: the same, because the GPU fell off the bus
//   no_causes: the causes of low clocks are not available
//   crowded: 100 processes use the GPU
//   bridges: NVLink connects the GPUs in pairs
//   unjoined: like `well`, but no NVLink is up
//   hidden: the other GPUs are not visible
//   fabric: NVLink connects the GPUs to those of other hosts
//   fabric_starting: it is about to
//   pascal: the GPU has no energy counter, and takes 100 W
//   well: nothing slows the GPU
//   ill: its memory had an error, a row is to be remapped, one NVLink is down, another has errors
// Compiled with LOCKSTEP_NVML_OLD, it is the library of a driver before 535.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <strings.h>
#include <unistd.h>

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNoPermission = 4,
              kNotFound = 6, kInsufficientSize = 7, kGpuIsLost = 15;
struct nvmlDevice_st {
  int number;
};
using nvmlDevice_t = nvmlDevice_st*;
struct nvmlProcessInfo_t {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
};

struct nvmlGpuFabricInfo_v2_t {
  unsigned version;
  unsigned char clusterUuid[16];
  int status;
  unsigned cliqueId;
  unsigned char state;
  unsigned healthMask;
};
struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
};

namespace {

std::array<nvmlDevice_st, 4> gpus{{{0x1B}, {0x5A}, {0x9A}, {0xDB}}};  // by bus
bool is(const char* mode) {
  const char* set = std::getenv("LOCKSTEP_NVML");
  return set != nullptr && std::strcmp(set, mode) == 0;
}
template <class T>
int give(nvmlDevice_t device, T* to, T value) {
  if (device == nullptr || to == nullptr) return kInvalidArgument;
  if (is("errors")) return kNotSupported;
  if (is("lost")) return kGpuIsLost;
  *to = value;
  return kSuccess;
}

}  // namespace

extern "C" {

const char* nvmlErrorString(int status) {
  return status == kGpuIsLost ? "GPU is lost" : "Insufficient Permissions";
}
int nvmlInit_v2() {
  return kSuccess;
}
int nvmlShutdown() {
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* device) {
  for (auto& one : gpus) {
    char its[32];
    std::snprintf(its, sizeof its, "0000:%02x:00.0", static_cast<unsigned>(one.number));
    if (strcasecmp(id, its) != 0) continue;
    *device = &one;
    return kSuccess;
  }
  return kNotFound;
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
  return give(device, milliwatts, is("pascal") ? 100000u : 612500u);
}
// The GPU has taken 500 W since the system started.
int nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* millijoules) {
  if (is("pascal")) return kNotSupported;
  using Milliseconds = std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<Milliseconds>(now).count();
  return give(device, millijoules, 500ull * static_cast<unsigned long long>(milliseconds));
}
int nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned* celsius) {
  return sensor == 0 ? give(device, celsius, 64u) : kInvalidArgument;
}
// Power cap, and a hardware slowdown by heat.
#ifdef LOCKSTEP_NVML_OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long* reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long* reasons) {
#endif
  if (is("no_causes")) return kNoPermission;
  return give(device, reasons, is("well") || is("unjoined") ? 0x4ull : 0x4ull | 0x8ull | 0x40ull);
}
int nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned* mhz) {
  return type == 1 ? give(device, mhz, 1980u) : kInvalidArgument;
}
int nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned since,
                                unsigned long long* errors) {
  if (type != 1 || since != 0) return kInvalidArgument;  // uncorrected, volatile
  return give(device, errors, is("ill") ? 2ull : 0ull);
}
int nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = *failed = 0;
  return give(device, pending, is("ill") ? 1u : 0u);
}
int nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned* is_up) {
  if (link >= 12) return kInvalidArgument;
  return give(device, is_up, is("unjoined") || (is("ill") && link == 5) ? 0u : 1u);
}
int nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, unsigned counter,
                                    unsigned long long* errors) {
  if (link >= 12 || counter >= 4) return kInvalidArgument;
  return give(device, errors, is("ill") && link == 3 ? 10ull * (counter + 1) : 0ull);
}
int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                            nvmlProcessInfo_t* processes) {
  if (device == nullptr || processes == nullptr) return kInvalidArgument;
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

int nvmlDeviceGetCount_v2(unsigned* count) {
  if (is("errors")) return kNotSupported;
  *count = is("hidden") ? 1 : gpus.size();
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  if (index >= gpus.size()) return kInvalidArgument;
  *device = &gpus[index];
  return kSuccess;
}
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  *pci = {};
  pci->bus = static_cast<unsigned>(device->number);
  std::snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
  return kSuccess;
}
int nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, int capability, int* status) {
  constexpr int kNvlink = 2, kOk = 0, kUnsupported = 5;
  if (a == b) return kInvalidArgument;
  const bool linked = !is("bridges") || (a - gpus.data()) / 2 == (b - gpus.data()) / 2;
  *status = capability == kNvlink && linked ? kOk : kUnsupported;
  return kSuccess;
}
int nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t* info) {
  if (device == nullptr || info->version != (36u | 2u << 24)) return kInvalidArgument;
  if (is("errors")) return kNotSupported;
  info->status = kSuccess;
  info->state = is("fabric_starting") ? 2 : 3;  // in progress, completed
  info->cliqueId = is("fabric") ? 32766 : 0;
  std::memset(info->clusterUuid, 0, sizeof info->clusterUuid);
  if (is("fabric") || is("fabric_starting")) info->clusterUuid[0] = 0x8f, info->clusterUuid[15] = 1;
  return kSuccess;
}

}  // extern "C"

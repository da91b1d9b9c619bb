#include "core/system/gpu_monitor.h"

#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <unistd.h>

#include "core/error.h"
#include "core/system/machine.h"
#include "core/units.h"

namespace lockstep {
namespace {

// Types and values of NVML, copied from its header, so that the build does not need the header.
using Status = int;
constexpr Status kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kInsufficientSize = 7,
                 kFunctionNotFound = 13;
constexpr unsigned kClockSm = 1, kSensorGpu = 0;
constexpr unsigned long long kNotAvailable = ~0ull;
struct ProcessInfo {  // of nvmlDeviceGetComputeRunningProcesses_v3
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);
struct FabricInfo {  // of nvmlDeviceGetGpuFabricInfoV, version 2
  unsigned version;
  std::array<unsigned char, 16> cluster;
  Status status;
  unsigned clique;
  unsigned char state;
  unsigned health;
};
static_assert(sizeof(FabricInfo) == 36);
constexpr unsigned kFabricInfoVersion = sizeof(FabricInfo) | 2u << 24;
constexpr unsigned char kFabricCompleted = 3;
struct PciInfo {  // of nvmlDeviceGetPciInfo_v3
  std::array<char, 16> legacy_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> id;
};
static_assert(sizeof(PciInfo) == 68);
constexpr int kNvlink = 2, kP2pOk = 0;  // of nvmlDeviceGetP2PStatus

struct Reason {
  unsigned long long bit;
  const char* text;
};
constexpr unsigned long long kPowerCap = 0x4, kSlowdown = 0x8, kThermal = 0x40, kPowerBrake = 0x80;
constexpr std::array<Reason, 4> kReasons{{
    {0x20, "heat (software thermal slowdown)"},
    {kThermal, "heat (hardware thermal slowdown)"},
    {kPowerBrake, "the power brake (requested by the host's power supply)"},
    {kSlowdown, "a hardware slowdown (heat or power)"},
}};

}  // namespace

struct GpuMonitor::Library {
  void* const handle;

  explicit Library(void* opened) : handle(opened) {}
  ~Library() { dlclose(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Calls a function of the library; returns kFunctionNotFound if it is absent.
  template <class... Arguments>
  Status call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<Status (*)(Arguments...)>(dlsym(handle, name));
    return function == nullptr ? kFunctionNotFound : function(arguments...);
  }
  // Reason for a failed call; empty if it succeeded or the GPU does not support it.
  std::string failure(const char* name, Status status) const {
    if (status == kSuccess || status == kNotSupported || status == kFunctionNotFound) return "";
    const auto words = reinterpret_cast<const char* (*)(Status)>(dlsym(handle, "nvmlErrorString"));
    return str(name, ": ", words != nullptr ? words(status) : str("status ", status));
  }
  // The number that a function returns through its last argument.
  template <class Number, class... Arguments>
  GpuAnswer<Number> ask(const char* name, Arguments... arguments) const {
    Number value = 0;
    const auto status = call(name, arguments..., &value);
    if (status != kSuccess) return {std::nullopt, failure(name, status)};
    return {value, ""};
  }
  // Same for a link or its counter; NVML reports a nonexistent one as an invalid argument.
  template <class Number, class... Arguments>
  GpuAnswer<Number> ask_link(const char* name, Arguments... arguments) const {
    Number value = 0;
    const auto status = call(name, arguments..., &value);
    if (status == kSuccess) return {value, ""};
    return {std::nullopt, status == kInvalidArgument ? "" : failure(name, status)};
  }
  template <class Number, class... Arguments>
  std::optional<Number> number(const char* name, Arguments... arguments) const {
    return ask<Number>(name, arguments...).value;
  }
};

GpuMonitor::GpuMonitor(const std::string& pci_bus_id) {
  void* handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return;
  auto library = std::make_unique<Library>(handle);
  if (library->call("nvmlInit_v2") != kSuccess) return;
  library_ = std::move(library);
  if (library_->call("nvmlDeviceGetHandleByPciBusId_v2", pci_bus_id.c_str(), &gpu_) != kSuccess)
    gpu_ = nullptr;
}

GpuMonitor::~GpuMonitor() {
  if (library_) library_->call("nvmlShutdown");
}

bool GpuMonitor::is_there() const {
  return gpu_ != nullptr;
}

std::optional<std::string> GpuMonitor::driver_version() const {
  std::array<char, 80> text{};
  if (!is_there() || library_->call("nvmlSystemGetDriverVersion", text.data(),
                                    static_cast<unsigned>(text.size())) != kSuccess)
    return std::nullopt;
  return text.data();
}

std::optional<double> GpuMonitor::power_limit_watts() const {
  if (!is_there()) return std::nullopt;
  const auto milliwatts = library_->number<unsigned>("nvmlDeviceGetEnforcedPowerLimit", gpu_);
  return milliwatts ? std::optional(*milliwatts / 1e3) : std::nullopt;
}

std::optional<double> GpuMonitor::energy_joules() const {
  if (!is_there()) return std::nullopt;
  const auto millijoules =
      library_->number<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption", gpu_);
  return millijoules ? std::optional(static_cast<double>(*millijoules) / 1e3) : std::nullopt;
}

GpuSharers GpuMonitor::sharers() const {
  if (!is_there()) return {};
  std::vector<ProcessInfo> processes(64);
  auto count = static_cast<unsigned>(processes.size());
  const auto list = [&] {
    return library_->call("nvmlDeviceGetComputeRunningProcesses_v3", gpu_, &count,
                          processes.data());
  };
  auto status = list();
  if (status == kInsufficientSize) {  // count is now the needed size, and more may start
    processes.resize(count += 64);
    status = list();
  }
  GpuSharers sharers;
  if (status != kSuccess) return sharers;
  processes.resize(std::min<std::size_t>(count, processes.size()));
  for (const auto& process : processes) {
    if (static_cast<pid_t>(process.pid) == getpid()) continue;
    sharers.pids.push_back(process.pid);
    if (process.bytes != kNotAvailable) sharers.bytes += static_cast<std::int64_t>(process.bytes);
  }
  return sharers;
}

std::string GpuMonitor::fabric_clique() const {
  FabricInfo info{};
  info.version = kFabricInfoVersion;
  if (!is_there() || library_->call("nvmlDeviceGetGpuFabricInfoV", gpu_, &info) != kSuccess ||
      info.state != kFabricCompleted || info.status != kSuccess)
    return "";
  // Switches inside one host are a fabric with cluster id 0 (NCCL treats them the same way).
  if (std::all_of(info.cluster.begin(), info.cluster.end(), [](auto byte) { return byte == 0; }))
    return "";
  std::string cluster;
  for (const unsigned byte : info.cluster) {
    constexpr const char* kHex = "0123456789abcdef";
    cluster += {kHex[byte >> 4], kHex[byte & 15]};
  }
  return str(cluster, "/", info.clique);
}

std::optional<std::vector<std::string>> GpuMonitor::nvlink_peers() const {
  if (!is_there()) return std::nullopt;
  const auto count = library_->number<unsigned>("nvmlDeviceGetCount_v2");
  if (!count || *count < 2) return std::nullopt;
  std::vector<std::string> peers;
  for (unsigned i = 0; i < *count; ++i) {
    void* other = nullptr;
    PciInfo pci{};
    int status = -1;
    if (library_->call("nvmlDeviceGetHandleByIndex_v2", i, &other) == kSuccess && other != gpu_ &&
        library_->call("nvmlDeviceGetP2PStatus", gpu_, other, kNvlink, &status) == kSuccess &&
        status == kP2pOk && library_->call("nvmlDeviceGetPciInfo_v3", other, &pci) == kSuccess)
      peers.push_back(pci_address(pci.id.data()));
  }
  return peers;
}

GpuReading GpuMonitor::read() const {
  GpuReading reading;
  if (!is_there()) return reading;
  const auto number = [&](const char* name, auto... arguments) {
    return library_->number<unsigned>(name, gpu_, arguments...);
  };
  const auto clock = library_->ask<unsigned>("nvmlDeviceGetClockInfo", gpu_, kClockSm);
  if (clock.value) reading.clock_mhz = *clock.value;
  reading.clock_failure = clock.failure;
  if (const auto milliwatts = number("nvmlDeviceGetPowerUsage"))
    reading.power_watts = *milliwatts / 1e3;
  if (const auto celsius = number("nvmlDeviceGetTemperature", kSensorGpu))
    reading.temperature_celsius = *celsius;
  using Bits = unsigned long long;
  auto causes = library_->ask<Bits>("nvmlDeviceGetCurrentClocksEventReasons", gpu_);
  if (!causes.value && causes.failure.empty())  // the function's name before driver 535
    causes = library_->ask<Bits>("nvmlDeviceGetCurrentClocksThrottleReasons", gpu_);
  reading.causes_failure = causes.failure;
  auto& reasons = causes.value;
  if (!reasons) return reading;
  reading.power_capped = (*reasons & kPowerCap) != 0;
  if ((*reasons & (kThermal | kPowerBrake)) != 0) *reasons &= ~kSlowdown;  // the cause is known
  for (const auto& reason : kReasons)
    if ((*reasons & reason.bit) != 0) reading.slowed_by.emplace_back(reason.text);
  return reading;
}

GpuHealth GpuMonitor::health() const {
  constexpr unsigned kUncorrected = 1, kSinceDriver = 0, kMostLinks = 18, kLinkCounters = 4;
  GpuHealth health;
  if (!is_there()) return health;
  using Count = unsigned long long;
  const auto add = [](auto& to, const auto& answer, auto amount) {
    if (answer.value) to.value = to.value.value_or(0) + amount(*answer.value);
    if (to.failure.empty()) to.failure = answer.failure;
  };
  const auto all = [](auto count) { return static_cast<std::int64_t>(count); };
  add(health.uncorrected_errors,
      library_->ask<Count>("nvmlDeviceGetTotalEccErrors", gpu_, kUncorrected, kSinceDriver), all);
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  const char* rows = "nvmlDeviceGetRemappedRows";
  const auto status = library_->call(rows, gpu_, &corrected, &uncorrected, &pending, &failed);
  if (status == kSuccess) health.needs_repair.value = pending != 0 || failed != 0;
  health.needs_repair.failure = library_->failure(rows, status);
  add(health.most_clock_mhz, library_->ask<unsigned>("nvmlDeviceGetMaxClockInfo", gpu_, kClockSm),
      [](unsigned mhz) { return mhz; });
  for (unsigned link = 0; link < kMostLinks; ++link) {
    const auto is_up = library_->ask_link<unsigned>("nvmlDeviceGetNvLinkState", gpu_, link);
    add(health.links_up, is_up, [](unsigned up) { return up != 0 ? 1 : 0; });
    add(health.links_down, is_up, [](unsigned up) { return up != 0 ? 0 : 1; });
    for (unsigned counter = 0; is_up.value.value_or(0) != 0 && counter < kLinkCounters; ++counter)
      add(health.link_errors,
          library_->ask_link<Count>("nvmlDeviceGetNvLinkErrorCounter", gpu_, link, counter), all);
  }
  return health;
}

std::string in_words(const GpuSharers& sharers) {
  if (sharers.pids.empty()) return "";
  auto text = sharers.bytes > 0 ? str("; other processes hold ",
                                      human_memory(static_cast<double>(sharers.bytes)), " of it: ")
                                : std::string("; other processes use it: ");
  const char* separator = "";
  for (const auto pid : sharers.pids) {
    text += str(separator, pid);
    separator = ", ";
  }
  return text;
}

}  // namespace lockstep

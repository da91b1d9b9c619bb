// Machine: which machine this is, and where its processors, GPUs and network adapters sit, as sysfs
// says (docs.kernel.org/ABI: sysfs-bus-pci, sysfs-devices-system-cpu, sysfs-class-infiniband).
// `sysfs` is /sys, or a test's copy. What a system does not say is unknown, never an error.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

std::string host_name();

// The same for all processes that run on one kernel, and only for them: its boot id. Containers of
// one machine have host names of their own, and two machines may have the same. Where the boot id
// cannot be read, the host name.
std::string machine_id();

// A GPU's address as sysfs has it, "0000:5a:00.0", of what CUDA ("0000:5A:00.0") or NVML
// ("00000000:5A:00.0") calls it.
std::string pci_address(const std::string& bus_id);

int numa_node(const std::filesystem::path& sysfs, const std::string& address);  // -1: unknown

// A network adapter, InfiniBand and RoCE ("mlx5_0") before Ethernet ("eth0").
struct Adapter {
  std::string name;
  int index = -1;  // among the machine's adapters of its kind, in the order of their numbers
};

// The adapter that is up and shares most of its PCIe path with the GPU; of those that share as much
// the ones of the same NUMA node; GPUs to which the same ones are nearest take turns, in the order
// of their addresses. No name where there is none.
Adapter nearest_adapter(const std::filesystem::path& sysfs, const std::string& address);

// One of the ranks on a machine, and the part of its processors that is the rank's.
struct Tenant {
  std::vector<int> allowed;  // its affinity mask when it started, ascending
  int numa_node = -1;        // of its GPU
};
struct ProcessorShare {
  std::vector<int> processors;   // ascending, of `allowed`
  bool set_by_launcher = false;  // or by a container
};

// A rank whose mask is its alone and not the whole machine was bound by its launcher, which is left
// as it is. Ranks with the same mask divide it: those with GPUs of one NUMA node the processors of
// that node; all of them together where a node is unknown or has none of the processors. Processors
// of one core stay together while there are cores enough; where there are more ranks than
// processors, ranks share one.
std::vector<ProcessorShare> divide_processors(const std::filesystem::path& sysfs,
                                              std::span<const Tenant> tenants);

}  // namespace lockstep

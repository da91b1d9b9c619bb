// Machine identifies this host and locates its CPUs, GPUs and NICs, from sysfs
// (docs.kernel.org/ABI: sysfs-bus-pci, sysfs-devices-system-cpu, sysfs-class-infiniband).
// `sysfs` is /sys, or a test's copy. Missing information is unknown, never an error.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// LOCKSTEP_HOSTNAME if it is set, else the kernel's name.
std::string host_name();

// The kernel's boot id, which is the same for all processes of a host and differs between hosts.
// Host names do not have this property: containers on one host have different ones, and two hosts
// may have the same. If the boot id cannot be read, returns the host name.
std::string machine_id();

// Converts a GPU's bus id of CUDA ("0000:5A:00.0") or NVML ("00000000:5A:00.0") to its address in
// sysfs, "0000:5a:00.0".
std::string pci_address(const std::string& bus_id);

int numa_node(const std::filesystem::path& sysfs, const std::string& address);  // -1: unknown

// A NIC: InfiniBand or RoCE ("mlx5_0") if there is any, else Ethernet ("eth0").
struct Adapter {
  std::string name;
  int index = -1;  // index among the host's NICs of this kind, in the order of their numbers
};

// The NIC that is up and shares the longest PCIe path with the GPU. Ties prefer the GPU's NUMA
// node. GPUs with the same nearest NICs use them in turn, in the order of the GPUs' addresses. The
// name is empty if there is no NIC.
Adapter nearest_adapter(const std::filesystem::path& sysfs, const std::string& address);

// One of the ranks on a host, and its share of the host's CPUs.
struct Tenant {
  std::vector<int> allowed;  // affinity mask at the start, ascending
  int numa_node = -1;        // NUMA node of its GPU
};
struct ProcessorShare {
  std::vector<int> processors;   // subset of `allowed`, ascending
  bool set_by_launcher = false;  // true if the launcher or a container bound the rank
};

// Divides the CPUs of a host among its ranks:
// - A rank keeps its mask if no other rank has it and it is not the whole host: a launcher set it.
// - Ranks with the same mask divide it. Ranks whose GPUs are on one NUMA node divide that node's
//   CPUs. If a node is unknown or has no CPU of the mask, all ranks divide the whole mask.
// - CPUs of one core stay together if there are enough cores.
// - With more ranks than CPUs, ranks share a CPU.
std::vector<ProcessorShare> divide_processors(const std::filesystem::path& sysfs,
                                              std::span<const Tenant> tenants);

}  // namespace lockstep

// A made-up /sys: what core/system/machine reads of one.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/affinity.h"
#include "tests/files.h"

namespace lockstep::testing {

class Sysfs {
 public:
  const std::filesystem::path& root() const { return directory_.path(); }

  void write(const std::string& path, const std::string& text) const {
    const auto file = root() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }

  // `way`: "pci0000:15/0000:15:01.0/0000:1b:00.0", from the root of its buses to the device.
  void device(const std::string& way, int numa_node) const {
    write("devices/" + way + "/numa_node", std::to_string(numa_node));
    link("bus/pci/devices", std::filesystem::path(way).filename(), "devices/" + way);
  }
  void display(const std::string& way, int numa_node, const char* vendor,
               const char* its_class) const {
    device(way, numa_node);
    write("devices/" + way + "/vendor", vendor);
    write("devices/" + way + "/class", its_class);
  }
  void gpu(const std::string& way, int numa_node) const {
    display(way, numa_node, "0x10de", "0x030200");
  }
  void infiniband(const std::string& name, const std::string& way, int numa_node,
                  const std::string& state = "4: ACTIVE") const {
    device(way, numa_node);
    write("class/infiniband/" + name + "/ports/1/state", state);
    link("class/infiniband/" + name, "device", "devices/" + way);
  }
  void ethernet(const std::string& name, const std::string& way, int numa_node,
                const std::string& state = "up") const {
    device(way, numa_node);
    write("class/net/" + name + "/operstate", state);
    link("class/net/" + name, "device", "devices/" + way);
  }

  void node(int number, const std::string& processors) const {
    write("devices/system/node/node" + std::to_string(number) + "/cpulist", processors);
  }
  // Those of one core are `apart` from each other; 0: a core has one.
  void processors(int count, int apart) const {
    write("devices/system/cpu/online", "0-" + std::to_string(count - 1));
    for (int i = 0; apart > 0 && i < count; ++i)
      write("devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list",
            str(i % apart, ",", i % apart + apart));
  }

 private:
  void link(const std::string& directory, const std::filesystem::path& name,
            const std::string& to) const {
    std::filesystem::create_directories(root() / directory);
    std::filesystem::remove(root() / directory / name);
    std::filesystem::create_symlink(root() / to, root() / directory / name);
  }

  static const char* memory() { return std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp"; }

  TemporaryDirectory directory_{memory()};  // hundreds of files, which a disk takes a second for
};

// As a DGX H100 has it: 2 NUMA nodes of 56 cores with 2 threads each, 8 GPUs that share a switch
// with a NIC each, and 4 NICs for storage. `numa` false: no NUMA nodes are reported.
struct DgxH100 {
  struct Place {
    const char* gpu;
    const char* adapter;
  };
  static const std::vector<Place>& places() {
    static const std::vector<Place> all{{"0000:1b:00.0", "mlx5_0"},  {"0000:43:00.0", "mlx5_3"},
                                        {"0000:52:00.0", "mlx5_4"},  {"0000:61:00.0", "mlx5_5"},
                                        {"0000:9d:00.0", "mlx5_6"},  {"0000:c3:00.0", "mlx5_9"},
                                        {"0000:d1:00.0", "mlx5_10"}, {"0000:df:00.0", "mlx5_11"}};
    return all;
  }

  explicit DgxH100(bool numa = true) {
    for (std::size_t i = 0; i < places().size(); ++i) {
      const auto way = str("pci0000:", 10 + i, "/0000:", 10 + i, ":01.0/0000:", 20 + i, ":00.0/");
      const int node = numa ? static_cast<int>(i / 4) : -1;
      sysfs.gpu(str(way, "0000:", 30 + i, ":01.0/", places()[i].gpu), node);
      sysfs.infiniband(places()[i].adapter, str(way, "0000:", 30 + i, ":00.0/0000:a", i, ":00.0"),
                       node);
    }
    for (const int storage : {1, 2, 7, 8})
      sysfs.infiniband(str("mlx5_", storage),
                       str("pci0000:0", storage, "/0000:b", storage, ":00.0"),
                       numa ? storage / 4 : -1);
    sysfs.processors(224, 112);
    if (!numa) return;
    sysfs.node(0, "0-55,112-167");
    sysfs.node(1, "56-111,168-223");
  }

  Sysfs sysfs;
};

}  // namespace lockstep::testing

#include "core/system/machine.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "core/affinity.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

// Entries of a directory, sorted by length first, so that mlx5_2 comes before mlx5_10. Empty if the
// directory does not exist.
std::vector<fs::path> entries(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code none;
  for (fs::directory_iterator at(directory, none), end; !none && at != end; at.increment(none))
    found.push_back(at->path());
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    return std::pair(a.native().size(), a.native()) < std::pair(b.native().size(), b.native());
  });
  return found;
}

// Place of a device in the bus tree: /sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0.
fs::path place_of(const fs::path& link) {
  std::error_code none;
  const auto real = fs::canonical(link, none);
  return none ? fs::path() : real;
}

int node_in(const fs::path& file) {
  int node = -1;
  return std::ifstream(file) >> node ? node : -1;
}

bool is_up(const fs::path& adapter) {
  if (const auto state = first_line(adapter / "operstate"); !state.empty()) return state == "up";
  const auto ports = entries(adapter / "ports");
  return std::any_of(ports.begin(), ports.end(), [](const fs::path& port) {
    return first_line(port / "state").rfind("4:", 0) == 0;  // "4: ACTIVE"
  });
}

std::vector<fs::path> adapters(const fs::path& sysfs) {
  auto found = entries(sysfs / "class/infiniband");
  if (found.empty()) found = entries(sysfs / "class/net");
  std::erase_if(found,
                [](const fs::path& adapter) { return place_of(adapter / "device").empty(); });
  return found;
}

// Nearness, larger is nearer: common components of the two paths from the root; same NUMA node.
std::pair<int, bool> nearness(const fs::path& gpu, const fs::path& adapter) {
  const auto a = place_of(gpu), b = place_of(adapter / "device");
  const auto fork = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  const int node = node_in(gpu / "numa_node");
  return {static_cast<int>(std::distance(a.begin(), fork)),
          node >= 0 && node == node_in(adapter / "device/numa_node")};
}

// Indices of the NICs that are up and nearest to a GPU.
std::vector<int> nearest(const fs::path& gpu, const std::vector<fs::path>& adapters) {
  std::vector<int> best;
  std::pair<int, bool> most{0, false};
  for (std::size_t i = 0; i < adapters.size(); ++i) {
    if (!is_up(adapters[i])) continue;
    const auto here = nearness(gpu, adapters[i]);
    if (here > most) best.clear();
    most = std::max(most, here);
    if (here == most) best.push_back(static_cast<int>(i));
  }
  return best;
}

bool is_gpu(const fs::path& device) {
  return first_line(device / "vendor") == "0x10de" &&
         first_line(device / "class").rfind("0x03", 0) == 0;  // display controllers
}

std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

std::vector<int> processors_of(const fs::path& sysfs, int node) {
  return parse_cpu_list(
      first_line(sysfs / "devices/system/node" / ("node" + std::to_string(node)) / "cpulist"));
}

// CPUs of each core, in the order of NUMA nodes and of first CPUs.
std::vector<std::vector<int>> cores_of(const fs::path& sysfs, const std::vector<int>& processors) {
  std::map<int, int> node_of;
  for (const auto& node : entries(sysfs / "devices/system/node"))
    if (const auto name = node.filename().string(); name.rfind("node", 0) == 0)
      for (const int i : parse_cpu_list(first_line(node / "cpulist")))
        node_of[i] = std::atoi(name.c_str() + 4);
  std::map<std::pair<int, int>, std::vector<int>> cores;
  for (const int i : processors) {
    const auto siblings =
        parse_cpu_list(first_line(sysfs / "devices/system/cpu" / ("cpu" + std::to_string(i)) /
                                  "topology/thread_siblings_list"));
    const int first = siblings.empty() ? i : siblings.front();
    const auto node = node_of.find(i);
    cores[{node == node_of.end() ? -1 : node->second, first}].push_back(i);
  }
  std::vector<std::vector<int>> in_order;
  for (auto& [key, core] : cores)
    in_order.push_back(std::move(core));
  return in_order;
}

// CPUs of part `i` of `parts`.
std::vector<int> part_of(const std::vector<std::vector<int>>& cores, std::size_t i,
                         std::size_t parts) {
  auto pieces = cores;
  if (cores.size() < parts) {  // hardware threads of a core go to different ranks
    pieces.clear();
    for (const auto& core : cores)
      for (const int processor : core)
        pieces.push_back({processor});
  }
  if (pieces.size() < parts) return pieces[i * pieces.size() / parts];
  std::vector<int> part;
  for (std::size_t j = i * pieces.size() / parts; j < (i + 1) * pieces.size() / parts; ++j)
    part.insert(part.end(), pieces[j].begin(), pieces[j].end());
  std::sort(part.begin(), part.end());
  return part;
}

using Ranks = std::vector<std::size_t>;  // indices of tenants

void divide(const fs::path& sysfs, const std::vector<int>& mask, std::span<const Tenant> tenants,
            const Ranks& ranks, std::vector<ProcessorShare>& shares) {
  std::map<int, Ranks> by_node;
  for (const auto rank : ranks)
    by_node[tenants[rank].numa_node].push_back(rank);
  std::map<int, std::vector<int>> near;
  for (const auto& [node, members] : by_node)
    near[node] = common(mask, processors_of(sysfs, node));
  if (std::any_of(near.begin(), near.end(), [](const auto& n) { return n.second.empty(); })) {
    by_node = {{-1, ranks}};
    near = {{-1, mask}};
  }
  for (const auto& [node, members] : by_node) {
    const auto cores = cores_of(sysfs, near[node]);
    for (std::size_t i = 0; i < members.size(); ++i)
      shares[members[i]].processors = part_of(cores, i, members.size());
  }
}

}  // namespace

std::string host_name() {
  if (const char* given = std::getenv("LOCKSTEP_HOSTNAME"); given != nullptr && *given != '\0')
    return given;
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::string machine_id() {
  const auto boot_id = first_line("/proc/sys/kernel/random/boot_id");
  return boot_id.empty() ? host_name() : boot_id;
}

std::string pci_address(const std::string& bus_id) {
  auto address = bus_id;
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::size_t kDomainDigits = 4;
  while (address.find(':') > kDomainDigits && address.front() == '0')
    address.erase(0, 1);
  return address;
}

int numa_node(const fs::path& sysfs, const std::string& address) {
  return node_in(sysfs / "bus/pci/devices" / address / "numa_node");
}

Adapter nearest_adapter(const fs::path& sysfs, const std::string& address) {
  const auto devices = sysfs / "bus/pci/devices";
  const auto all = adapters(sysfs);
  if (place_of(devices / address).empty()) return {};
  const auto mine = nearest(devices / address, all);
  if (mine.empty()) return {};
  std::size_t turn = 0;
  for (const auto& device : entries(devices))
    if (device.filename() < address && is_gpu(device) && nearest(device, all) == mine) ++turn;
  const int index = mine[turn % mine.size()];
  return {all[static_cast<std::size_t>(index)].filename().string(), index};
}

std::vector<ProcessorShare> divide_processors(const fs::path& sysfs,
                                              std::span<const Tenant> tenants) {
  const auto online = parse_cpu_list(first_line(sysfs / "devices/system/cpu/online"));
  std::map<std::vector<int>, Ranks> by_mask;
  for (std::size_t i = 0; i < tenants.size(); ++i)
    by_mask[tenants[i].allowed].push_back(i);
  std::vector<ProcessorShare> shares(tenants.size());
  for (const auto& [mask, ranks] : by_mask) {
    if (mask.empty()) continue;
    if (ranks.size() == 1 && mask != online)
      shares[ranks.front()] = {mask, true};
    else
      divide(sysfs, mask, tenants, ranks, shares);
  }
  return shares;
}

}  // namespace lockstep

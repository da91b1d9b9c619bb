#include "launch/preflight/preflight.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/gpu.h"
#include "core/log.h"
#include "dist/topology_here.h"
#include "launch/preflight/compute_checks.h"
#include "launch/preflight/counter_checks.h"
#include "launch/preflight/link_checks.h"
#include "launch/preflight/slowdown.h"
#include "launch/preflight/step_check.h"
#include "launch/preflight/storage_check.h"
#include "train/step/memory.h"

namespace lockstep {
namespace {

// A world without a collective ring: streams of checks end before their world does, so the ring
// must not keep calls on them.
class RinglessWorld final : public WorldOver {
 public:
  using WorldOver::WorldOver;
  CollectiveRing* ring() override { return nullptr; }
};

// The fastest measured link inside NVLink domains, or across them.
const LinkTime* link_of(const LinkTimes& links, bool is_across) {
  const LinkTime* best = nullptr;
  for (const LinkTime& link : links.links())
    if (link.kind == Collective::all_gather && (link.domains > 1) == is_across &&
        (best == nullptr || link.bytes_per_second > best->bytes_per_second))
      best = &link;
  return best;
}

// Hardware that is not in the table, with the measured rates.
Hardware measured_hardware(const PreflightRank& rank, const ProductRates& rates, double memory,
                           double host) {
  const Device device = rank.compute.device();
  Hardware hardware;
  hardware.bf16_flops = rates.bf16 > 0 ? rates.bf16 : rates.fp32;
  hardware.fp32_flops = rates.fp32 > 0 ? rates.fp32 : rates.bf16;
  hardware.hbm_bytes_per_second = memory;
  hardware.host_bytes_per_second = host;
  if (rank.on_gpus()) {
    const auto gpu = gpu::properties(device.index);
    hardware.name = gpu.name;
    hardware.architecture = architecture_of(10 * gpu.major + gpu.minor);
    hardware.multiprocessors = gpu.multiprocessors;
    return hardware;
  }
  hardware.name = "CPU";
  hardware.hbm_bytes =
      all_memory_bytes(device) / std::ssize(host_ranks(rank.topology, rank.world.rank()));
  return hardware;
}

// True if this rank reaches other hosts over its NIC, not over NVLink switches.
bool sends_by_adapter(const Topology& topology, int rank) {
  const auto& domain =
      topology
          .domains[static_cast<std::size_t>(topology.domain_of[static_cast<std::size_t>(rank)])];
  const auto here = host_ranks(topology, rank);
  return std::ranges::all_of(
      domain.ranks, [&](int other) { return std::ranges::find(here, other) != here.end(); });
}

// `hosts`: rate to another host over the NIC of this rank; 0: not measured.
void set_links(Cluster& cluster, double hosts) {
  const LinkTime* inside = link_of(cluster.links, false);
  const LinkTime* across = link_of(cluster.links, true);
  Hardware& hardware = cluster.hardware;
  if (inside != nullptr) cluster.inside_latency_seconds = inside->latency_seconds;
  if (across != nullptr) cluster.across_latency_seconds = across->latency_seconds;
  if (hardware.nic_bytes_per_second == 0)
    hardware.nic_bytes_per_second = across != nullptr ? across->bytes_per_second : hosts;
  if (hardware.nvlink_bytes_per_second == 0)
    hardware.nvlink_bytes_per_second =
        inside != nullptr ? inside->bytes_per_second : hardware.nic_bytes_per_second;
}

int largest_domain(const Topology& topology) {
  std::size_t most = 1;
  for (const Domain& domain : topology.domains)
    most = std::max(most, domain.ranks.size());
  return static_cast<int>(most);
}

void check_compute(PreflightRank& rank, std::span<const MatmulShape> shapes,
                   const GpuMonitor* monitor, Cluster& cluster) {
  log_info("preflight: matmuls");
  const auto rates = check_products(rank, shapes, monitor);
  log_info("preflight: memory");
  const double memory = check_memory(rank);
  const double host = check_host_copies(rank);
  cluster.hardware =
      rank.known != nullptr ? *rank.known : measured_hardware(rank, rates, memory, host);
  if (rank.on_gpus()) {
    cluster.hardware = calibrated(cluster.hardware, {.memory = memory, .host = host});
    cluster.hardware.hbm_bytes = gpu::properties(rank.compute.device().index).memory_bytes;
  }
  cluster.launch_seconds = launch_seconds(rank.compute);
}

// Returns the bytes per second that the slowest rank sends to other hosts; 0: no other hosts.
double check_links(PreflightRank& rank, const MatmulShape& shape, Cluster& cluster) {
  if (rank.world.size() > 1) log_info("preflight: links");
  const double hosts = check_hosts(rank);
  const double longest = largest_of_ranks(rank.world, hosts > 0 ? 1 / hosts : 0);
  const double slowest = longest > 0 ? 1 / longest : 0;
  cluster.links = check_collectives(rank, slowest);
  if (rank.on_gpus() && sends_by_adapter(rank.topology, rank.world.rank()))
    cluster.hardware = calibrated(cluster.hardware, {.hosts = hosts});
  set_links(cluster, hosts);
  if (!cluster.links.links().empty()) {  // empty for one rank, or if the network is too slow
    const auto slowdown = measure_slowdown(rank, shape);
    cluster.compute_beside = slowdown.compute_beside;
    cluster.other_beside = slowdown.other_beside;
  }
  return slowest;
}

void check_disks(PreflightRank& rank, const std::filesystem::path& scratch, Cluster& cluster) {
  log_info("preflight: storage");
  const auto rates = check_storage(rank, scratch);
  const auto ranks = static_cast<double>(host_ranks(rank.topology, rank.world.rank()).size());
  cluster.storage_read_bytes_per_second = ranks * rates.read;
  cluster.storage_write_bytes_per_second = ranks * rates.write;
}

void check_model(PreflightRank& rank, const Config& config, double slowest, Cluster& cluster) {
  log_info("preflight: steps of the model");
  rank.transfers.reset();
  auto costs = check_steps(rank, config, slowest);
  cluster.operators = std::move(costs.operators);
  cluster.wait_share = costs.wait_share;
  cluster.constant_bytes = costs.constant_bytes;
}

void describe(Cluster& cluster, const PreflightOptions& options, const World& world,
              const Topology& topology) {
  const auto ranks = static_cast<int>(topology.places.size());
  cluster.device = options.device.kind;
  cluster.nodes = static_cast<int>(machines(topology).size());
  cluster.ranks_per_node = (ranks + cluster.nodes - 1) / cluster.nodes;
  cluster.threads = options.threads;
  if (cluster.device == Device::Kind::cuda) cluster.host_memory_bytes = all_memory_bytes(Device{});
  cluster.hardware.domain_ranks = largest_domain(topology);
  if (cluster.ranks() != ranks && world.rank() == 0)
    log_warning("hosts have unequal numbers of ranks: plans assume ", cluster.nodes, " hosts with ",
                cluster.ranks_per_node, " ranks; pass --ranks ", ranks, " to lockstep plan");
  cluster.name = str(cluster.nodes, cluster.nodes == 1 ? " host of " : " hosts of ",
                     cluster.ranks_per_node, " x ", cluster.hardware.name);
}

// Resources that all checks of a rank share.
struct RankChecks {
  RankChecks(const PreflightOptions& options, World& watched, const Topology& topology)
      : world(watched),
        gpu(on_gpus(options) ? std::optional<GpuMonitor>(gpu::pci_bus_id(options.device.index))
                             : std::nullopt),
        counters(read_counters(monitor())),
        compute(options.device, "compute", Stream::Mode::immediate, options.threads),
        own_bytes_before(on_gpus(options) ? all_memory_bytes(options.device) -
                                                available_memory_bytes(options.device)
                                          : resident_memory_bytes(Device{}) - file_memory_bytes()),
        transfers(LinkTimes::memory(world, options.device)),
        comms(make_comms(world, options.mesh, &topology,
                         options.config != nullptr ? options.config->layout.reduce : Reduce::fp32)),
        known(on_gpus(options)
                  ? expected_hardware(find_hardware(gpu::properties(options.device.index).name),
                                      options.cluster)
                  : std::nullopt),
        rank{.world = world,
             .topology = topology,
             .comms = comms,
             .compute = compute,
             .known = known ? &*known : nullptr,
             .own_bytes_before = own_bytes_before,
             .transfers = std::move(transfers)} {}
  static bool on_gpus(const PreflightOptions& options) {
    return options.device.kind == Device::Kind::cuda;
  }
  const GpuMonitor* monitor() const { return gpu ? &*gpu : nullptr; }

  RinglessWorld world;
  std::optional<GpuMonitor> gpu;
  HealthCounters counters;
  Stream compute;
  std::int64_t own_bytes_before;
  Arena transfers;
  Comms comms;
  std::optional<Hardware> known;
  PreflightRank rank;
};

}  // namespace

std::optional<Hardware> expected_hardware(const Hardware* known, const Cluster* file) {
  const bool is_named = file != nullptr && file->device == Device::Kind::cuda;
  const bool is_written = is_named && !file->is_measured;
  if (is_written && known != nullptr && find_hardware(file->hardware.name) != nullptr &&
      file->hardware.name != known->name)
    throw ConfigError(str("plan.cluster: expected ", known->name, ", the GPU of this host, found ",
                          file->hardware.name));
  if (is_written) return file->hardware;
  if (known == nullptr) return std::nullopt;
  Hardware gpu = *known;
  const double nic = is_named ? file->hardware.nic_bytes_per_second : 0;
  if (nic > 0) gpu.nic_bytes_per_second = std::min(gpu.nic_bytes_per_second, nic);
  return gpu;
}

Hardware calibrated(Hardware gpu, const MeasuredRates& rates) {
  if (rates.memory > 0) gpu.hbm_bytes_per_second = rates.memory / kCopyShare;
  if (rates.host > 0) gpu.host_bytes_per_second = rates.host;
  if (rates.hosts > 0) gpu.nic_bytes_per_second = rates.hosts / EngineEfficiency().network;
  return gpu;
}

std::vector<Who> who_is_who(const Topology& topology) {
  std::vector<Who> all;
  std::map<std::string, int> ranks_of;  // by host name, so far: hosts may share a name
  for (std::size_t rank = 0; rank < topology.places.size(); ++rank) {
    const RankPlace& place = topology.places[rank];
    const int number = ranks_of[place.host]++;
    const auto gpu = place.gpu < 0 ? std::string() : str(", GPU ", place.gpu);
    all.push_back({str("host ", place.host, gpu, ", rank ", rank), str(place.host, "/", number)});
  }
  return all;
}

Preflight preflight(const PreflightOptions& options, World& watched, const Topology& topology,
                    FunctionRef<void(const std::vector<Finding>&)> so_far) {
  RankChecks checks(options, watched, topology);
  PreflightRank& rank = checks.rank;
  Preflight result;
  Cluster& cluster = result.cluster;

  if (options.config != nullptr) require_room_for_steps(rank, *options.config);
  const auto shapes = matmul_shapes(options.config, checks.compute, topology, watched.rank());
  check_compute(rank, shapes, checks.monitor(), cluster);
  so_far(rank.findings);
  const double slowest = check_links(rank, shapes.front(), cluster);
  so_far(rank.findings);
  check_disks(rank, options.scratch, cluster);
  so_far(rank.findings);
  if (options.config != nullptr) check_model(rank, *options.config, slowest, cluster);
  check_counters(rank, checks.counters, read_counters(checks.monitor()));
  so_far(rank.findings);
  describe(cluster, options, checks.world, topology);
  result.findings = std::move(rank.findings);
  return result;
}

std::string quick_preflight(const PreflightOptions& options, World& world,
                            const Topology& topology) {
  RankChecks checks(options, world, topology);
  PreflightRank& rank = checks.rank;
  check_products(rank, matmul_shapes(nullptr, checks.compute, topology, world.rank()),
                 checks.monitor());
  check_memory(rank);
  check_counters(rank, checks.counters, read_counters(checks.monitor()));
  std::erase_if(rank.findings, [](auto& finding) { return finding.check == kProcessorShare; });
  std::string faults;
  for (const auto& fault :
       judge({rank.findings}, {who_is_who(topology).at(static_cast<std::size_t>(world.rank()))}, {})
           .faults)
    faults += str(faults.empty() ? "" : "; ", fault.whose, ": ", fault.what);
  return faults;
}

}  // namespace lockstep

#include "train/preflight/preflight.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>

#include "core/gpu.h"
#include "core/log.h"
#include "core/progress.h"
#include "dist/topology_here.h"
#include "train/memory.h"
#include "train/preflight/preflight_checks.h"
#include "train/run_parts.h"
#include "train/training.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStepsWindow = 30;  // seconds that steps of the model may take
constexpr int kWarmSteps = 2, kFewSteps = 3, kMostSteps = 9;
constexpr std::int64_t kMostMicroBatches = 3;  // of a step: others are alike

// Streams of checks end before their world does, so calls on them are not kept in its ring.
class RinglessWorld final : public WorldOver {
 public:
  using WorldOver::WorldOver;
  CollectiveRing* ring() override { return nullptr; }
};

double largest_of_ranks(World& world, double mine) {
  double most = mine;
  for (const auto& said : world.exchange(Json(mine).dump()))
    most = std::max(most, Json::parse(said, "a rank's figure").as_double());
  return most;
}

// Without copies for checkpoints. Throws ConfigError where there is no room for it.
Arenas::Bytes checked_bytes(const Config& config, const MemoryRoom& room) {
  const RunBytes bytes = run_bytes(config, room, false);
  require_room(config, bytes, room);
  return bytes.training;
}

// Steps of the configuration's model on random tokens.
class ModelSteps {
 public:
  ModelSteps(const Config& config, PreflightRank& rank)
      : rank_(rank),
        room_(room_here(rank.compute.device(), static_cast<int>(std::ssize(machine_ranks(
                                                   rank.topology, rank.world.rank()))))),
        bytes_(checked_bytes(config, room_)),
        arenas_(rank.compute.device(), bytes_, rank.world.allocate(bytes_.device)),
        training_(settings(config), rank.compute, arenas_,
                  make_comms(rank.world, rank.comms.mesh, &rank.topology)),
        pinned_(rank.compute.device(), Arena::Memory::pinned_host,
                16 * config.train.micro_batch * config.train.sequence_length + (1 << 12)),
        batch_(training_.random_batch(pinned_)),
        micro_batches_(std::min(kMostMicroBatches, step_split(config).micro_batches)) {
    if (rank.on_gpus()) training_.choose_products({});
    training_.initialize();
  }

  // The times of operators; adds this rank's own, of which no other rank is part.
  OperatorTimes measure() {
    for (int i = 0; i < kWarmSteps - 1; ++i)
      step(nullptr);
    const auto begin = Clock::now();
    step(nullptr);
    const double seconds =
        largest_of_ranks(rank_.world, std::chrono::duration<double>(Clock::now() - begin).count());
    const int steps = std::clamp(static_cast<int>(kStepsWindow / seconds), kFewSteps, kMostSteps);
    std::vector<std::unique_ptr<OpLog>> logs;
    std::vector<const OpLog*> all;
    for (int i = 0; i < steps; ++i) {
      all.push_back(logs.emplace_back(std::make_unique<OpLog>()).get());
      step(logs.back().get());
    }
    Finding own{.check = "a step's own operators", .unit = Finding::Unit::seconds};
    own.tolerance = rank_.on_gpus() ? 0.05 : 0.25;
    rank_.add(own, [&](Finding& f) { f.value = own_seconds(logs); });
    return OperatorTimes(all);
  }

  // What the process cannot give to its arenas. A GPU's are taken whole, and before them a run
  // leaves some free; of a processor's memory steps write all that they take.
  std::int64_t constant_bytes() const {
    const Device device = rank_.compute.device();
    const bool on_gpus = rank_.on_gpus();
    const auto arenas = bytes_.device + (on_gpus ? 0 : bytes_.pinned);
    const auto kept = on_gpus ? all_memory_bytes(device) - room_.gpu_bytes : 0;
    return std::max<std::int64_t>(resident_memory_bytes(device) - arenas, kept);
  }

 private:
  TrainingConfig settings(const Config& config) const {
    auto settled = config;
    settled.train.attention = attention_of(config, rank_.compute);
    auto training = training_config(settled);
    training.cuda_graphs = false;  // calls are timed one by one
    return training;
  }

  void step(OpLog* log) {
    rank_.world.exchange("");
    rank_.compute.set_op_log(log);
    training_.begin_step(++number_, 1e-4);
    for (std::int64_t m = 1; m <= micro_batches_; ++m)
      training_.micro_step(batch_, m == micro_batches_);
    training_.finish_step();
    training_.numbers(number_);
    rank_.compute.synchronize();
    rank_.compute.set_op_log(nullptr);
    if (log != nullptr && rank_.on_gpus()) log->settle();
    training_.trace().take();
    made_progress();
  }

  // Median over steps.
  static double own_seconds(const std::vector<std::unique_ptr<OpLog>>& logs) {
    std::vector<double> all;
    for (const auto& log : logs) {
      double sum = 0;
      for (const auto& entry : log->entries())
        if (entry.what == OpLog::What::op && entry.op.kind != Op::Kind::collective)
          sum += entry.seconds;
      all.push_back(sum);
    }
    std::ranges::sort(all);
    return all[all.size() / 2];
  }

  PreflightRank& rank_;
  const MemoryRoom room_;
  const Arenas::Bytes bytes_;
  Arenas arenas_;
  Training training_;
  Arena pinned_;
  const Batch batch_;
  const std::int64_t micro_batches_;
  std::int64_t number_ = 0;
};

// The fastest link of collectives inside domains, or across them.
const LinkTime* link_of(const LinkTimes& links, bool is_across) {
  const LinkTime* best = nullptr;
  for (const LinkTime& link : links.links())
    if (link.kind == Collective::all_gather && (link.domains > 1) == is_across &&
        (best == nullptr || link.bytes_per_second > best->bytes_per_second))
      best = &link;
  return best;
}

// Of what is not in the table: as measured.
Hardware measured_hardware(const PreflightRank& rank, const ProductRates& rates, double memory,
                           double host) {
  const Device device = rank.compute.device();
  Hardware hardware;
  hardware.bf16_flops = rates.bf16 > 0 ? rates.bf16 : rates.fp32;
  hardware.fp32_flops = rates.fp32 > 0 ? rates.fp32 : rates.bf16;
  hardware.hbm_bytes_per_second = rank.on_gpus() ? memory / kHbmShare : memory;
  hardware.host_bytes_per_second = host;
  if (rank.on_gpus()) {
    const auto gpu = gpu::properties(device.index);
    hardware.name = gpu.name;
    hardware.multiprocessors = gpu.multiprocessors;
    hardware.hbm_bytes = gpu.memory_bytes;
    return hardware;
  }
  hardware.name = "processors";
  hardware.hbm_bytes =
      all_memory_bytes(device) / std::ssize(machine_ranks(rank.topology, rank.world.rank()));
  return hardware;
}

void set_links(Cluster& cluster, double hosts) {
  const LinkTime* inside = link_of(cluster.links, false);
  const LinkTime* across = link_of(cluster.links, true);
  Hardware& hardware = cluster.hardware;
  const bool is_known = hardware.nvlink_bytes_per_second > 0;
  if (inside != nullptr) cluster.inside_latency_seconds = inside->latency_seconds;
  if (across != nullptr) cluster.across_latency_seconds = across->latency_seconds;
  if (is_known) return;
  hardware.nic_bytes_per_second = across != nullptr ? across->bytes_per_second : hosts;
  hardware.nvlink_bytes_per_second =
      inside != nullptr ? inside->bytes_per_second : hardware.nic_bytes_per_second;
}

int largest_domain(const Topology& topology) {
  std::size_t most = 1;
  for (const Domain& domain : topology.domains)
    most = std::max(most, domain.ranks.size());
  return static_cast<int>(most);
}

}  // namespace

std::vector<Who> who_is_who(const Topology& topology) {
  std::vector<Who> all;
  std::map<std::string, int> ranks_of;  // of a machine, so far
  for (std::size_t rank = 0; rank < topology.places.size(); ++rank) {
    const RankPlace& place = topology.places[rank];
    const int number = ranks_of[place.machine]++;
    const auto gpu = place.gpu < 0 ? std::string() : str(", GPU ", place.gpu);
    all.push_back({str("host ", place.host, gpu, ", rank ", rank), str(place.host, "/", number)});
  }
  return all;
}

Preflight preflight(const PreflightOptions& options, World& watched, const Topology& topology) {
  RinglessWorld world(watched);
  const bool on_gpus = options.device.kind == Device::Kind::cuda;
  std::optional<GpuMonitor> gpu;
  if (on_gpus) gpu.emplace(gpu::pci_bus_id(options.device.index));
  const GpuMonitor* monitor = gpu ? &*gpu : nullptr;
  const auto counters = read_counters(monitor);
  Stream compute(options.device, "compute", Stream::Mode::immediate, options.threads);
  Comms comms = make_comms(world, options.mesh, &topology);
  const Hardware* known =
      on_gpus ? find_hardware(gpu::properties(options.device.index).name) : nullptr;
  PreflightRank rank{world, topology, comms, compute, known, {}};
  Preflight result;
  Cluster& cluster = result.cluster;
  const auto say = [&](const char* what) { log_info("preflight: ", what); };

  say("products");
  const auto shapes = product_shapes(options.config, compute, topology, world.rank());
  const auto rates = check_products(rank, shapes, monitor);
  say("memory");
  const double memory = check_memory(rank);
  const double host = check_host_copies(rank);
  cluster.hardware = known != nullptr ? *known : measured_hardware(rank, rates, memory, host);
  if (world.size() > 1) say("links");
  const double hosts = check_hosts(rank);
  double slowest = 1 / largest_of_ranks(world, hosts > 0 ? 1 / hosts : 0);
  if (!(slowest < 1e300)) slowest = 0;
  cluster.links = check_collectives(rank, slowest);
  set_links(cluster, hosts);
  const auto slowdown = check_slowdown(rank, shapes.front());
  cluster.compute_beside = slowdown.compute_beside;
  cluster.other_beside = slowdown.other_beside;
  say("storage");
  const auto storage = check_storage(rank, options.scratch);
  const auto here = static_cast<double>(machine_ranks(topology, world.rank()).size());
  cluster.storage_read_bytes_per_second = here * storage.read;
  cluster.storage_write_bytes_per_second = here * storage.write;
  cluster.launch_seconds = launch_seconds(compute);
  if (options.config != nullptr) {
    say("steps of the model");
    ModelSteps steps(*options.config, rank);
    cluster.operators = steps.measure();
    cluster.constant_bytes = steps.constant_bytes();
  }
  check_counters(rank, counters, monitor);

  std::set<std::string> machines;
  for (const RankPlace& place : topology.places)
    machines.insert(place.machine);
  cluster.device = options.device.kind;
  cluster.nodes = static_cast<int>(machines.size());
  cluster.ranks_per_node = (world.size() + cluster.nodes - 1) / cluster.nodes;
  cluster.threads = options.threads;
  if (on_gpus) cluster.host_memory_bytes = all_memory_bytes(Device{});
  cluster.hardware.domain_ranks = largest_domain(topology);
  cluster.name = str(cluster.nodes, cluster.nodes == 1 ? " host of " : " hosts of ",
                     cluster.ranks_per_node, " x ", cluster.hardware.name);
  result.findings = std::move(rank.findings);
  return result;
}

}  // namespace lockstep

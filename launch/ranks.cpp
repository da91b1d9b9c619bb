#include "launch/ranks.h"

#include <algorithm>

#include "core/cpu.h"
#include "core/gpu.h"
#include "core/log.h"
#include "core/system/machine.h"
#include "core/thread_pool.h"
#include "dist/job/control_world.h"
#include "dist/job/monitored_world.h"
#include "dist/job/rendezvous.h"
#include "dist/mpi_world.h"
#include "dist/nccl_world.h"
#include "dist/topology_here.h"
#include "launch/device.h"
#include "launch/version.h"
#include "train/config.h"

namespace lockstep {
namespace {

// "lockstep 0.1.0, commit ...": the first two lines of --version.
std::string version_line() {
  const auto text = version_text();
  const auto first = text.find('\n'), second = text.find('\n', first + 1);
  return text.substr(0, first) + "," + text.substr(first + 1, second - first - 1);
}

// Throws ConfigError if ranks would not compute the same.
void check_same(World& launched, const Fields& settings, Device device) {
  const bool on_cpu = device.kind == Device::Kind::cpu;
  Fields fields{{"program", version_line()}, {"--device", on_cpu ? "cpu" : "cuda"}};
  if (on_cpu) fields.emplace_back("instruction set (set by LOCKSTEP_CPU)", name(cpu_level()));
  fields.insert(fields.end(), settings.begin(), settings.end());
  agree(launched, "program or configuration", fields);
}

Topology exchange_places(World& launched, Device device) {
  std::vector<RankPlace> places;
  const auto said = launched.exchange(to_json(this_place(device)).dump());
  for (std::size_t rank = 0; rank < said.size(); ++rank)
    places.push_back(rank_place(Json::parse(said[rank], str("the place of rank ", rank))));
  return topology_of(std::move(places));
}

}  // namespace

std::unique_ptr<World> meet_ranks(Device device) {
  const bool on_gpus = device.kind == Device::Kind::cuda;
  const auto found = find_ranks(environment(), {.has_mpi = has_mpi()}, place_from_agent());
  if (found.way == Rendezvous::Way::one) return std::make_unique<LoneWorld>();
  if (on_gpus && found.ranks > 1 && !has_nccl())
    throw ConfigError(str(found.reason,
                          ", but this build has no NCCL, which several GPU ranks need; install "
                          "libnccl-dev and configure the build again, or pass --device cpu"));
  const bool by_mpi = found.way == Rendezvous::Way::mpi;
  if (!by_mpi) {
    log_as_rank(found.rank);
    log_info("waiting for ", found.ranks, " ranks at ", found.address, ":", found.port);
  }
  auto world = by_mpi ? start_mpi() : meet_at_address(found);
  if (by_mpi) check_started(found, world->rank(), world->size());
  log_as_rank(world->rank());
  const bool is_as_found = found.rank == world->rank() && found.ranks == world->size();
  log_info(
      found.reason,
      is_as_found ? "" : str(" (MPI: rank ", world->rank(), " of ", world->size(), ")"),
      by_mpi ? "; communication by MPI" : str("; rendezvous at ", found.address, ":", found.port),
      on_gpus  ? str(", GPU communication by NCCL ", nccl_in_words())
      : by_mpi ? ""
               : ", communication by TCP and shared memory");
  return world;
}

Device device_of_rank(Device device, World& launched) {
  const auto here = ranks_here(launched);
  if (device.kind == Device::Kind::cpu) return device;
  const int rank = launched.rank();
  const auto local = static_cast<int>(std::find(here.begin(), here.end(), rank) - here.begin());
  const int gpus = gpu::devices().count;
  if (gpus == 1) return device;  // the launcher shows each rank only its own GPU
  if (local >= gpus)
    throw ConfigError(str("rank ", rank, " is number ", local + 1, " on host ", host_name(),
                          ", which has ", gpus,
                          " GPUs; start one rank per GPU, or pass --device cpu"));
  return {Device::Kind::cuda, static_cast<std::int16_t>(local)};
}

PlacedRanks place_ranks(World& launched, const Fields& settings, const Mesh& mesh, Device device,
                        TensorAcross across) {
  PlacedRanks placed;
  check_same(launched, settings, device);
  const auto as_launched = exchange_places(launched, device);
  auto order = placement(mesh, as_launched, across);
  placed.topology = renumbered(as_launched, order);
  placed.world = std::make_unique<PlacedWorld>(launched, std::move(order));
  if (launched.size() == 1) return placed;
  const int rank = placed.world->rank();
  log_as_rank(rank);
  log_info(in_words(placed.topology));
  const auto shares = machine_shares(placed.topology, rank);
  use_share(shares, rank);
  const bool speaks = shares.ranks.front() == rank;  // for its host
  const auto said = placed.world->exchange(speaks ? in_words(placed.topology, shares) : "");
  for (const auto& line : in_words(placed.topology, said))
    log_info(line);
  return placed;
}

std::unique_ptr<World> watch_ranks(World& placed, std::int64_t stall_seconds,
                                   const std::filesystem::path& run) {
  if (placed.size() == 1) return nullptr;
  const auto here = environment();
  const auto interfaces = here.find("LOCKSTEP_INTERFACE");
  MonitorOptions options{.directory = run};
  options.timing.stall = Milliseconds(1000 * stall_seconds);
  if (interfaces != here.end()) options.interfaces = interfaces->second;
  return std::make_unique<MonitoredWorld>(placed, options);
}

namespace {

Mesh mesh_of(const ModelRanksOptions& options, int ranks) {
  const auto shared = options.tensor * options.shard;
  if (ranks % shared != 0)
    throw ConfigError(str("--tensor ", options.tensor, " x --shard ", options.shard, " is ", shared,
                          " ranks, but ", ranks, ranks == 1 ? " was" : " were", " started; start ",
                          shared, " ranks or a multiple (mpirun -n, srun -n)"));
  return {.replicate = static_cast<int>(ranks / shared),
          .shard = static_cast<int>(options.shard),
          .tensor = static_cast<int>(options.tensor)};
}

}  // namespace

int with_collectives(World& host, Device device, FunctionRef<int(World&)> act) {
  if (device.kind != Device::Kind::cuda || host.size() == 1) return act(host);
  const auto nccl = make_nccl_world(host, device);
  return nccl->ends_all([&] { return act(*nccl); });
}

int on_model_ranks(const ModelRanksOptions& options, const Fields& settings,
                   FunctionRef<int(const ModelRanks&, Stream&)> act) {
  const auto launched = meet_ranks(device_of(options.device));
  return launched->ends_all([&] {
    const auto mesh = mesh_of(options, launched->size());
    const auto device = device_of_rank(device_of(options.device), *launched);
    const auto placed = place_ranks(*launched, settings, mesh, device, TensorAcross::allowed);
    const auto watched = watch_ranks(*placed.world, Config().train.stall_seconds);
    World& host = watched ? *watched : *placed.world;
    return host.ends_all([&] {
      return with_collectives(host, device, [&](World& world) {
        const int threads = options.threads > 0 ? options.threads : processors_allowed();
        Stream stream(device, "compute", Stream::Mode::immediate, threads);
        return act({world, mesh, &placed.topology}, stream);
      });
    });
  });
}

}  // namespace lockstep

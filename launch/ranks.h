// Start-up of the ranks of a run: rendezvous, consistency checks, and placement in the mesh.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/function_ref.h"
#include "core/tensor.h"
#include "dist/comms.h"
#include "dist/job/rank_consistency.h"
#include "dist/topology/topology_placement.h"
#include "train/step/inference.h"

namespace lockstep {

// Connects all ranks that a launcher started, or returns a world of this rank alone. The
// environment decides (dist/job/rendezvous.h). Logs the result. Throws ConfigError with a remedy if
// the ranks cannot connect.
std::unique_ptr<World> meet_ranks(Device device);

// The GPU of this rank, if `device` is a GPU: the n-th GPU for the n-th rank of a host. A
// collective call. Throws ConfigError if the host has too few GPUs.
Device device_of_rank(Device device, World& launched);

struct PlacedRanks {
  std::unique_ptr<World> world;  // ranks numbered as in the mesh of the configuration
  Topology topology;
};
// Checks that all ranks have the same version and the same `settings`; otherwise it throws
// ConfigError on all ranks, with the differences. Then it detects the topology, assigns each rank
// its place in the mesh, and divides the CPU cores of a host among its ranks. `launched` outlives
// the result.
PlacedRanks place_ranks(World& launched, const Fields& settings, const Mesh& mesh, Device device,
                        TensorAcross across);

// Adds failure detection to a world: the death or stall of a rank aborts all ranks (see
// monitored_world.h), which then write their reports into the directory of the run, if it is given.
// Returns nullptr for a single rank.
std::unique_ptr<World> watch_ranks(World& placed, std::int64_t stall_seconds,
                                   const std::filesystem::path& run = {});

// Returns act(world), where the collectives of `world` are NCCL's if there are several GPUs, and
// those of `host` otherwise. The other ranks get an error of act() before NCCL's groups are
// aborted, because an abort of NCCL may hang.
int with_collectives(World& host, Device device, FunctionRef<int(World& world)> act);

// Options of eval and generate for the ranks that share a model.
struct ModelRanksOptions {
  std::int64_t tensor = 1, shard = 1;  // sizes of these axes; replicate uses the remaining ranks
  std::string device = "best";
  int threads = 0;  // 0: every CPU core that a rank may run on
};
// Runs act(ranks, compute) on all ranks that a launcher started, or on this rank alone, and returns
// its exit code. `settings` must be equal on all ranks.
int on_model_ranks(const ModelRanksOptions& options, const Fields& settings,
                   FunctionRef<int(const ModelRanks& ranks, Stream& compute)> act);

}  // namespace lockstep

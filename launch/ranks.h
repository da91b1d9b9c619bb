// How the ranks of a run come together before it: who they are, whether they start the same, and
// which places of the mesh they take.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/function_ref.h"
#include "core/tensor.h"
#include "dist/comms.h"
#include "dist/job/agreement.h"
#include "dist/topology/topology_placement.h"
#include "train/step/inference.h"

namespace lockstep {

// All ranks that a launcher started with this one, or this one alone, as the environment says
// (dist/job/rendezvous.h); logs which. Throws ConfigError where they cannot meet, with what to do.
std::unique_ptr<World> meet_ranks(Device device);

// The GPU of this rank, where `device` is one: of several on its machine, the one of its number
// among the ranks there. Every rank calls it. Throws ConfigError where there are fewer.
Device device_of_rank(Device device, World& launched);

struct PlacedRanks {
  std::unique_ptr<World> world;  // as the mesh of the configuration numbers them
  Topology topology;
};
// Refuses ranks that would not compute the same: another version, or other `settings`, by
// ConfigError on all of them, with what differs where. Then finds out where each sits, gives each
// its place in the mesh and, of several on one machine, its part of the processors. `launched`
// outlives the result.
PlacedRanks place_ranks(World& launched, const Fields& settings, const Mesh& mesh, Device device,
                        TensorAcross across);

// That world with its ranks watched, so that the death or stall of one ends all (see
// watched_world.h), and what that leaves in the run's directory, where there is one; nothing for a
// rank that is alone.
std::unique_ptr<World> watch_ranks(World& placed, std::int64_t stall_seconds,
                                   const std::filesystem::path& run = {});

// What eval and generate say of the ranks that share a model.
struct ModelRanksOptions {
  std::int64_t tensor = 1, shard = 1;  // ranks along these axes; along replicate are the others
  std::string device = "best";
  int threads = 0;  // 0: every processor that a rank may run on
};
// act(ranks, compute) on all ranks that a launcher started with this one, or on this one alone;
// `settings` must be the same on all. Its exit code.
int on_model_ranks(const ModelRanksOptions& options, const Fields& settings,
                   FunctionRef<int(const ModelRanks& ranks, Stream& compute)> act);

}  // namespace lockstep

// Volume: the collectives of one training step on one rank, and the bytes of other ranks that it
// receives for them, as closed formulas: docs/parallelism.md derives each. A run counts the same
// (Communicator::traffic) while it calls them.
#pragma once

#include <vector>

#include "dist/comms.h"
#include "dist/param_store.h"

namespace lockstep {

// A step of a rank, in numbers.
struct StepShape {
  struct Unit {
    std::int64_t elements = 0;  // of a tensor rank, padding included
    std::int64_t split = 0;     // those in front, whose parameters the tensor ranks divide
    Keep keep = Keep::own;      // of its whole weights: ParamStore::weight_keeps
  };

  Mesh mesh;
  int rank = 0;                                // of the mesh
  int shard_inside = 1, replicate_inside = 1;  // how many peers of these axes a domain has
  Sharding sharding = Sharding::full;
  DType type = DType::fp32;  // of weights and activations
  std::int64_t scales = 0;   // of weights whose products are in fp8 with one scale a tensor
  std::vector<Unit> units;   // layers in their order
  std::int64_t micro_batches = 1, tokens = 0;  // N of each
  std::int64_t layers = 0, width = 0;
  bool recomputes_blocks = false;
  std::int64_t loss_chunks = 1;  // in which a micro-batch's logits are made
};

// Each a Communicator of Comms.
enum class Group : std::uint8_t {
  all,
  tensor,
  gathers,
  shard_inside,
  shard_across,
  replicate,
  replicate_inside,
  replicate_across
};
inline constexpr std::size_t kGroups = 8;
Communicator& group_of(const Comms& comms, Group group);

// How many ranks a group has, and over how many of the topology's domains they are spread; without
// one all are in one domain.
struct GroupPlace {
  int ranks = 1, domains = 1;
  int inside() const { return (ranks + domains - 1) / domains; }  // of one domain, at most
};
GroupPlace place_of(const Comms& comms, Group group, const Topology* topology);

struct VolumeTerm {
  const char* name;  // as docs/parallelism.md has it
  Group group;
  Collective kind;
  Communicator::Traffic traffic;
};

// Terms without a call are left out.
std::vector<VolumeTerm> step_volume(const StepShape& step);
// Of all terms of a group and kind.
Communicator::Traffic sum_of(const std::vector<VolumeTerm>& terms, Group group, Collective kind);

}  // namespace lockstep

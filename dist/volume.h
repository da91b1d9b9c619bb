// Volume gives the collectives of one training step on one rank, and the bytes that it receives
// from other ranks for them, as closed formulas. docs/parallelism.md derives each formula. A run
// counts the same numbers (Communicator::traffic) while it makes the calls.
#pragma once

#include <vector>

#include "dist/comms.h"
#include "dist/param_store.h"

namespace lockstep {

// Sizes and counts of one rank's training step.
struct StepShape {
  struct Unit {
    std::int64_t elements = 0;  // of one tensor rank, padding included
    std::int64_t split = 0;     // first elements: of parameters split over tensor ranks
    Keep keep = Keep::own;      // sharing of its whole weights: ParamStore::weight_keeps
  };

  Mesh mesh;
  int rank = 0;                                // in the mesh
  int shard_inside = 1, replicate_inside = 1;  // peers of these axes in one domain
  Sharding sharding = Sharding::full;
  Reduce reduce = Reduce::fp32;
  DType type = DType::fp32;  // of weights and activations
  std::int64_t scales = 0;   // number of fp8 weight scales, for matmuls with one scale per tensor
  std::vector<Unit> units;   // layers in order
  std::int64_t micro_batches = 1, tokens = 0;  // tokens: N of each micro-batch
  std::int64_t layers = 0, width = 0;
  bool recomputes_blocks = false;
  std::int64_t tensor_chunks = 1;  // of the tokens, which tensor ranks gather and sum apart
  std::int64_t loss_chunks = 1;    // chunks in which a micro-batch's logits are made
};

Communicator& group_of(const Comms& comms, Group group);  // group: not Group::other

// Number of ranks of a group, and number of the topology's domains over which they are spread.
// Without a topology all ranks are in one domain.
struct GroupPlace {
  int ranks = 1, domains = 1;
  int inside() const { return (ranks + domains - 1) / domains; }  // maximum in one domain
};
GroupPlace place_of(const Comms& comms, Group group, const DomainMap* topology);

struct VolumeTerm {
  const char* name;  // name in docs/parallelism.md
  Group group;
  Collective kind;
  Communicator::Traffic traffic;
};

// Terms without a call are omitted.
std::vector<VolumeTerm> step_volume(const StepShape& step);
// Sum over all terms of a group and kind.
Communicator::Traffic sum_of(const std::vector<VolumeTerm>& terms, Group group, Collective kind);

}  // namespace lockstep

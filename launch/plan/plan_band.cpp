#include "launch/plan/plan_band.h"

namespace lockstep {
namespace {

// Quantiles 0.1 and 0.9 of measured / planned time: on GPUs by tests/bench/published/leave_out.py,
// on CPUs by tests/bench/plan_bench.py.
constexpr PlanFile::Band kOneNode{0.974, 1.134}, kSeveralNodes{0.938, 1.119};
constexpr PlanFile::Band kManyNodes{0.911, 1.082}, kProcessors{0.98, 1.05};
constexpr int kNodeGpus = 8, kSeveralNodesGpus = 128;

}  // namespace

PlanFile::Band plan_band(const Cluster& cluster, int ranks) {
  if (cluster.device == Device::Kind::cpu)
    return cluster.is_measured ? kProcessors : PlanFile::Band{};
  if (ranks <= kNodeGpus) return kOneNode;
  return ranks <= kSeveralNodesGpus ? kSeveralNodes : kManyNodes;
}

}  // namespace lockstep

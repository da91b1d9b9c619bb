#include "dist/communicator.h"

#include "kernels/elementwise.h"

namespace lockstep {

void SingleCommunicator::all_reduce(Tensor, ReduceOp, Stream&) {}

void SingleCommunicator::all_gather(Tensor out, ConstTensor in, Stream& stream) {
  convert(stream, out, in);
}

void SingleCommunicator::all_to_all(Tensor out, ConstTensor in, Stream& stream) {
  convert(stream, out, in);
}

void SingleCommunicator::broadcast(Tensor, int root, Stream&) {
  LOCKSTEP_CHECK(root == 0, "broadcast from rank ", root, " of a group of 1");
}

void SingleCommunicator::barrier() {}

Comms make_comms(const Mesh& mesh) {
  for (const auto axis : {Axis::replicate, Axis::shard, Axis::tensor})
    if (mesh.size(axis) != 1)
      throw ConfigError(str("the ", name(axis), " axis has ", mesh.size(axis),
                            " ranks; this version trains on one: set it to 1"));
  Comms comms;
  comms.world = std::make_unique<SingleCommunicator>();
  for (auto& axis : comms.axis)
    axis = std::make_unique<SingleCommunicator>();
  return comms;
}

}  // namespace lockstep

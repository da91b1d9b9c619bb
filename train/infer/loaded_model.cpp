#include "train/infer/loaded_model.h"

#include "dist/topology_here.h"
#include "train/step/memory.h"

namespace lockstep {
namespace {

Arenas arenas_of(const Inference::Config& config, const ModelRanks& ranks, const Stream& stream,
                 const std::string& remedy, FunctionRef<void(Inference&)> work) {
  const auto bytes = measure_inference(config, ranks.mesh, /*rank=*/0, stream, work);
  room_here(stream.device(), static_cast<int>(ranks_here(ranks.world).size()))
      .require(bytes, remedy);
  return {stream.device(), bytes, ranks.world.allocate(bytes.device)};
}

}  // namespace

LoadedModel::LoadedModel(const ModelSource& source, const ModelRanks& ranks, Stream& stream,
                         const std::string& remedy, FunctionRef<void(Inference&)> work)
    : config_{.model = source.model},
      arenas_(arenas_of(config_, ranks, stream, remedy, work)),
      inference_(config_, stream, arenas_, ranks.comms()) {
  load_weights(source, inference_.params(), stream);
}

}  // namespace lockstep

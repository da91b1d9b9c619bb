#include "train/model_source.h"

#include "checkpoint/checkpointer.h"
#include "model/families.h"
#include "train/run_state.h"

namespace lockstep {
namespace {

ModelSource source_of_checkpoint(const std::filesystem::path& checkpoint) {
  Json about = read_manifest(checkpoint).about;
  auto model =
      config_from_huggingface(about.at("model"), (checkpoint / kCheckpointManifestName).string());
  return {.path = checkpoint, .about = std::move(about), .model = model};
}

}  // namespace

ModelSource find_model(const std::filesystem::path& path) {
  if (exists(path / kCheckpointManifestName)) return source_of_checkpoint(path);
  const auto checkpoints = path / "checkpoints";
  if (exists(checkpoints)) {
    const auto newest = latest_checkpoint(checkpoints);
    if (!newest)
      throw DataError(str(checkpoints.string(),
                          ": no checkpoint that validates; the run has not saved yet, or see "
                          "`lockstep checkpoint list ",
                          path.string(), "`"));
    return source_of_checkpoint(checkpoint_path(checkpoints, *newest));
  }
  throw DataError(str(path.string(), exists(path) ? "" : " does not exist",
                      ": expected the directory of a run (with checkpoints/) or of a checkpoint "
                      "(with ",
                      kCheckpointManifestName, ")"));
}

void load_weights(const ModelSource& source, ParamStore& params, Stream& stream) {
  load_checkpoint(source.path, weight_slices(params), Match::subset);
  params.refresh_weights(stream);
}

}  // namespace lockstep

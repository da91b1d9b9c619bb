#include "train/interop/model_source.h"

#include "checkpoint/checkpointer.h"
#include "core/file.h"
#include "model/families.h"
#include "train/interop/foreign_models.h"
#include "train/interop/huggingface.h"
#include "train/interop/llmc.h"
#include "train/step/host_staging.h"
#include "train/step/state_slices.h"

namespace lockstep {
namespace {

ModelSource source_of_checkpoint(const std::filesystem::path& checkpoint) {
  Json about = read_manifest(checkpoint).about;
  auto model =
      config_from_huggingface(about.at("model"), (checkpoint / kCheckpointManifestName).string());
  return {.form = ModelSource::Form::checkpoint,
          .path = checkpoint,
          .about = std::move(about),
          .model = model};
}

}  // namespace

ModelSource find_model(const std::filesystem::path& path) {
  if (path_exists(path / kCheckpointManifestName)) return source_of_checkpoint(path);
  if (const auto checkpoints = checkpoints_of(path)) {
    const auto newest = latest_checkpoint(*checkpoints);
    if (!newest)
      throw DataError(str(checkpoints->string(),
                          ": no valid checkpoint; the run has not saved one yet, or see `lockstep "
                          "checkpoint list ",
                          path.string(), "`"));
    return source_of_checkpoint(checkpoint_path(*checkpoints, *newest));
  }
  ModelSource source{.form = ModelSource::Form::huggingface, .path = path, .model = {}};
  if (is_huggingface_directory(path)) {
    source.model = huggingface_config(path);
    return source;
  }
  if (is_llmc_model(path)) {
    source.form = ModelSource::Form::llmc;
    source.model = llmc_config(path);
    return source;
  }
  const auto foreign = foreign_model(path);
  throw DataError(
      str(path.string(), path_exists(path) ? "" : " does not exist", ": ",
          foreign.what.empty() ? "" : "found " + foreign.what + "; ",
          "expected the directory of a run (with checkpoints/), of its archive, of a checkpoint "
          "(with ",
          kCheckpointManifestName,
          ") or of a Hugging Face model (with config.json), or "
          "an llm.c model",
          foreign.advice.empty() ? "" : ". ", foreign.advice));
}

void load_weights(const ModelSource& source, ParamStore& params, Stream& stream) {
  HostStaging state(weight_slices(params), stream);
  const auto& weights = state.slices();
  switch (source.form) {
    case ModelSource::Form::checkpoint: {
      const Communicator& all = *params.comms().all;
      const auto manifest = read_manifest(source.path);
      load_checkpoint(source.path, manifest, weights, Match::subset);
      if (all.size() > 1)
        verify_part(source.path, manifest, {all.rank(), all.size()}, Depth::contents);
      break;
    }
    case ModelSource::Form::huggingface:
      import_huggingface(source.path, source.model, weights);
      break;
    case ModelSource::Form::llmc: import_llmc(source.path, weights); break;
  }
  state.send();
  params.refresh_weights(stream);
}

}  // namespace lockstep

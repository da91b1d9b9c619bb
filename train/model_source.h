// ModelSource: a trained model on disk, in whichever form a person has it.
#pragma once

#include <filesystem>

#include "core/json.h"
#include "dist/param_store.h"
#include "model/config.h"

namespace lockstep {

struct ModelSource {
  std::filesystem::path path;  // of the checkpoint
  Json about;                  // what the checkpoint says of itself
  ModelConfig model;
};

// What `path` holds: a run (its newest checkpoint that validates) or a checkpoint. Throws DataError
// that says what was looked for where it is neither.
ModelSource find_model(const std::filesystem::path& path);

// Fills the weights, masters included, of a store that a model like source.model declared. Throws
// DataError where the files are damaged or hold other tensors.
void load_weights(const ModelSource& source, ParamStore& params, Stream& stream);

}  // namespace lockstep

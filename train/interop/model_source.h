// ModelSource: a trained model on disk, in whichever form a person has it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/json.h"
#include "dist/param_store.h"
#include "model/config.h"

namespace lockstep {

struct ModelSource {
  enum class Form : std::uint8_t { checkpoint, huggingface, llmc };
  Form form = Form::checkpoint;
  std::filesystem::path path;   // the checkpoint, Hugging Face directory or llm.c file
  Json about = Json::Object{};  // what a checkpoint says of itself
  ModelConfig model;
};

// What `path` holds: a run (its newest checkpoint that validates), a checkpoint, a Hugging Face
// directory or an llm.c model. Throws DataError that says what was looked for where it is none.
ModelSource find_model(const std::filesystem::path& path);

// Fills the weights, masters included, of a store that a model like source.model declared. Throws
// DataError where the files are damaged or hold other tensors.
void load_weights(const ModelSource& source, ParamStore& params, Stream& stream);

}  // namespace lockstep

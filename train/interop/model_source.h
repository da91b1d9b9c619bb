// ModelSource: a trained model on disk, in any supported format.
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
  Json about = Json::Object{};  // description in a checkpoint's manifest
  ModelConfig model;
};

// Finds the model at `path`: a run (its newest valid checkpoint), a checkpoint, a Hugging Face
// directory or an llm.c model. Otherwise throws DataError, which lists the supported formats.
ModelSource find_model(const std::filesystem::path& path);

// Fills the weights and master weights of a store that a model like source.model declared. Throws
// DataError if the files are damaged or hold other tensors.
void load_weights(const ModelSource& source, ParamStore& params, Stream& stream);

}  // namespace lockstep

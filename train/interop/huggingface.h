// HuggingFace reads and writes model directories of `transformers`. They hold config.json,
// tokenizer files, and weights in one safetensors file or in shards with an index. model/families
// has the tensor names. Weights are moved in pieces, so memory never holds a second copy of the
// model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "checkpoint/checkpointer.h"
#include "core/dtype.h"
#include "model/config.h"
#include "train/interop/token_ids.h"

namespace lockstep {

bool is_huggingface_directory(const std::filesystem::path& path);  // has a config.json

// Reads config.json. Throws DataError if it is missing or describes a model that this engine does
// not support.
ModelConfig huggingface_config(const std::filesystem::path& directory);

// Fills `weights`, the parameters of a model like `config`, from the files. Stored F64, F32, BF16
// and F16 are converted to fp32 or bf16. Throws DataError naming tensors that are missing,
// unexpected, or of another shape.
void import_huggingface(const std::filesystem::path& directory, const ModelConfig& config,
                        std::span<const StateSlice> weights);

struct HuggingFaceExport {
  DType dtype = DType::bf16;                 // fp32 or bf16
  std::int64_t shard_bytes = 5'000'000'000;  // largest size of the data in one file
  std::filesystem::path tokenizer_from =
      {};                       // directory whose tokenizer files are copied; empty: none
  bool byte_tokenizer = false;  // writes the files of the tokenizer `bytes`
  TokenIds token_ids = {};      // for config.json and generation_config.json
};

// Writes a directory that `transformers` loads. `weights` hold every element of every parameter.
// Slices with a fetch function are fetched before their tensor is written. config.json is written
// last, so an interrupted export does not look like a model. Throws UsageError if the directory is
// not empty, and DataError if it cannot be written.
void export_huggingface(const std::filesystem::path& directory, const ModelConfig& config,
                        std::span<const StateSlice> weights, const HuggingFaceExport& options);

// Copies the files of a tokenizer byte for byte. Throws DataError if there is no tokenizer.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep

// HuggingFace: models as directories of `transformers`: config.json, weights in one safetensors
// file or in shards with an index, tokenizer files. model/families knows the names; this moves the
// numbers, a piece at a time, so that no second copy of the model is ever in memory.
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

// Throws DataError where config.json is missing or describes what this engine does not compute.
ModelConfig huggingface_config(const std::filesystem::path& directory);

// Fills `weights`, the parameters of a model like `config`, from the files. Stored F32, BF16 and
// F16 convert to fp32 or bf16. Throws DataError naming the tensors that are missing, unexpected or
// of another shape.
void import_huggingface(const std::filesystem::path& directory, const ModelConfig& config,
                        std::span<const StateSlice> weights);

struct HuggingFaceExport {
  DType dtype = DType::bf16;                 // fp32 or bf16
  std::int64_t shard_bytes = 5'000'000'000;  // of data, at most in one file
  std::filesystem::path tokenizer_from =
      {};                   // directory whose tokenizer files are copied; or empty
  TokenIds token_ids = {};  // of config.json and generation_config.json
};

// Writes a directory that `transformers` loads. `weights` hold every element of every parameter;
// those of one of its tensors are fetched, where that is needed, before it is written.
// config.json comes last, so an interrupted export is not taken for a model. Throws UsageError
// where the directory is not empty, DataError where it cannot be written.
void export_huggingface(const std::filesystem::path& directory, const ModelConfig& config,
                        std::span<const StateSlice> weights, const HuggingFaceExport& options);

// Copies those of the files that describe a tokenizer, byte for byte. Throws DataError where there
// is none.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep

// Export of GGUF files, the models of llama.cpp.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/checkpointer.h"
#include "model/config.h"
#include "train/interop/gguf_file.h"
#include "train/interop/token_ids.h"

namespace lockstep {

struct GgufExport {
  GgufType type = GgufType::f16;  // of matrices; vectors and learned positions are F32
  std::string tokenizer;          // see open_tokenizer
  TokenIds token_ids = {};
};

// Writes a file that llama.cpp loads. `weights` are as for export_huggingface. Beside the weights,
// memory holds a few rows of a tensor. Throws UsageError if the file exists, and DataError naming
// the setting that llama.cpp does not support.
void export_gguf(const std::filesystem::path& path, const ModelConfig& config,
                 std::span<const StateSlice> weights, const GgufExport& options);

}  // namespace lockstep

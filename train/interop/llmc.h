// Llmc: GPT-2 checkpoints of llm.c, which are read, not written. A file is int32[256], then all
// parameters, each of all layers, matrices as [outputs, inputs]: docs/formats.md.
#pragma once

#include <filesystem>
#include <span>

#include "checkpoint/checkpointer.h"
#include "model/config.h"

namespace lockstep {

bool is_llmc_model(const std::filesystem::path& path);  // a file with that magic number

// Throws DataError naming file and byte where the header is not one of such a model, or the file
// has not the size that it makes.
ModelConfig llmc_config(const std::filesystem::path& path);

// Fills `weights`, the parameters of a model like llmc_config(path). The rows that pad the
// vocabulary are left out.
void import_llmc(const std::filesystem::path& path, std::span<const StateSlice> weights);

}  // namespace lockstep

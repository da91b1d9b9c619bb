// Llmc reads GPT-2 checkpoints of llm.c; it does not write them. A file is a header of int32[256],
// then all parameters, each for all layers, with matrices as [outputs, inputs]: docs/formats.md.
#pragma once

#include <filesystem>
#include <span>

#include "checkpoint/checkpointer.h"
#include "model/config.h"

namespace lockstep {

bool is_llmc_model(const std::filesystem::path& path);  // a file with llm.c's magic number

// Reads the header. Throws DataError naming file and byte if it does not describe a GPT-2 model, or
// if the file has another size than it implies.
ModelConfig llmc_config(const std::filesystem::path& path);

// Fills `weights`, the parameters of a model like llmc_config(path). Rows that pad the vocabulary
// are skipped.
void import_llmc(const std::filesystem::path& path, std::span<const StateSlice> weights);

}  // namespace lockstep

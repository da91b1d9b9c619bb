// NumericsRecord lists what may change the bits of a GPU run besides its configuration and build. A
// run stores it in numerics.json and in its checkpoints; a resume uses it again.
#pragma once

#include <filesystem>
#include <string>

#include "core/function_ref.h"
#include "core/json.h"
#include "dist/job/rank_consistency.h"
#include "train/step/training.h"

namespace lockstep {

struct NumericsRecord {
  std::string device;  // "NVIDIA H200"
  std::string driver;  // "580.65.06"; without NVML, the CUDA version it supports: "13.0"
  std::string nccl{};  // nccl_in_words(), if there are several ranks
  std::vector<std::string> cleared{};  // gpu::cleared_variables()
  MatmulAlgorithms products;
};

// Adds the record as members of a checkpoint's "numerics" or of numerics.json.
void add_to(Json& object, const NumericsRecord& record);
NumericsRecord numerics_in(const Json& object);  // throws DataError if a member is missing or wrong
Json read_numerics(const std::filesystem::path& file);  // throws DataError

// The record of the GPU of `compute`, without matmul algorithms. `ranks`: size of the run.
NumericsRecord numerics_here(const Stream& compute, int ranks);
// The fields that must be the same on all ranks, for agree().
Fields fields_of(const NumericsRecord& record, const std::string& attention);

// Chooses the matmul algorithms of `training` on the GPU of `compute`. It takes the recorded ones
// if the record is complete and of the same GPU and cuBLASLt version, else it measures. It logs the
// choice and its reason. All ranks use the choice of rank 0. Afterwards the weights are random, and
// the gradients are invalid.
//   recorded  input of numerics_in; null or without products (of a CPU): no record. If it throws a
//             DataError, the error is logged and counts as no record
//   where     source of the record, for messages
NumericsRecord choose_numerics(Training& training, const Stream& compute,
                               FunctionRef<Json()> recorded, const std::string& where);

}  // namespace lockstep

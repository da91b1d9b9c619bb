// NumericsRecord: what may change the bits of a run on a GPU beside its configuration and build. A
// run keeps it in numerics.json and in its checkpoints; a resume computes with it again.
#pragma once

#include <filesystem>
#include <string>

#include "core/function_ref.h"
#include "core/json.h"
#include "dist/job/agreement.h"
#include "train/step/training.h"

namespace lockstep {

struct NumericsRecord {
  std::string device;  // "NVIDIA H200"
  std::string driver;  // "580.65.06"; where NVML is not there, the CUDA it is for: "13.0"
  std::string nccl{};  // of several ranks: nccl_in_words()
  std::vector<std::string> cleared{};  // gpu::cleared_variables()
  ProductChoices products;
};

// As members of an object: of a checkpoint's "numerics", and of numerics.json.
void add_to(Json& object, const NumericsRecord& record);
NumericsRecord numerics_in(const Json& object);         // throws DataError where it does not say
Json read_numerics(const std::filesystem::path& file);  // throws DataError

// What the GPU of `compute` computes with, whatever the products are. `ranks`: of the run.
NumericsRecord numerics_here(const Stream& compute, int ranks);
// What must be the same on all ranks, for agree().
Fields fields_of(const NumericsRecord& record, const std::string& attention);

// Chooses how the GPU of `compute` computes the products of `training`: as recorded, where that is
// of such a GPU, of this cuBLASLt, and whole; else by measuring. Says in the log which, and why not
// as recorded. All ranks compute as rank 0 chose. Afterwards weights are random and gradients of no
// use.
//   recorded  what numerics_in reads; null, or without products (of a CPU): none. A DataError that
//             it throws is said, and counts as none
//   where     it comes from
NumericsRecord choose_numerics(Training& training, const Stream& compute,
                               FunctionRef<Json()> recorded, const std::string& where);

}  // namespace lockstep

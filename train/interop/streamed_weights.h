// StreamedWeights: weights of a checkpoint for a reader that takes one Hugging Face tensor after
// the other. Memory holds one tensor at a time.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "train/interop/model_source.h"

namespace lockstep {

class StreamedWeights {
 public:
  // Throws DataError if the checkpoint has no readable manifest.
  explicit StreamedWeights(const ModelSource& checkpoint);
  StreamedWeights(const StreamedWeights&) = delete;
  StreamedWeights& operator=(const StreamedWeights&) = delete;

  // Slices of all parameters, each whole and in fp32. The elements are valid from slice.fetch()
  // until a slice of another tensor is fetched.
  const std::vector<StateSlice>& slices() const { return slices_; }

 private:
  std::filesystem::path path_;
  CheckpointManifest manifest_;
  std::vector<StateSlice> slices_;
  std::vector<float> memory_;
};

}  // namespace lockstep

// StreamedWeights: a checkpoint's weights for a reader that takes one tensor of Hugging Face's
// after the other: only that one is in memory.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "train/interop/model_source.h"

namespace lockstep {

class StreamedWeights {
 public:
  // Throws DataError where the checkpoint has no readable manifest.
  explicit StreamedWeights(const ModelSource& checkpoint);
  StreamedWeights(const StreamedWeights&) = delete;
  StreamedWeights& operator=(const StreamedWeights&) = delete;

  // Each parameter in fp32, whole, once it is fetched: until one of another tensor is.
  const std::vector<StateSlice>& slices() const { return slices_; }

 private:
  std::filesystem::path path_;
  CheckpointManifest manifest_;
  std::vector<StateSlice> slices_;
  std::vector<float> memory_;
};

}  // namespace lockstep

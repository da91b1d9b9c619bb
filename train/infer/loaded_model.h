// LoadedModel: a trained model in memory, ready to generate text.
#pragma once

#include <string>

#include "core/function_ref.h"
#include "train/interop/model_source.h"
#include "train/step/inference.h"

namespace lockstep {

class LoadedModel {
 public:
  // Allocates the model and the memory of `work`, then loads the weights. `work` gets an Inference
  // on a measuring stream and does what will be done with the model. Throws ConfigError with
  // `remedy` if this host has too little memory.
  LoadedModel(const ModelSource& source, const ModelRanks& ranks, Stream& stream,
              const std::string& remedy, FunctionRef<void(Inference& model)> work);

  Inference& inference() { return inference_; }

 private:
  Inference::Config config_;
  Arenas arenas_;
  Inference inference_;
};

}  // namespace lockstep

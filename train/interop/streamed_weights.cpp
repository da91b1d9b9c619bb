#include "train/interop/streamed_weights.h"

#include <algorithm>
#include <unordered_map>

#include "model/families.h"
#include "train/step/inference.h"
#include "train/step/memory.h"
#include "train/step/state_slices.h"

namespace lockstep {
namespace {

// Slices of the model's parameters, without memory for the elements.
std::vector<StateSlice> parameters_of(const ModelConfig& model) {
  Stream stream(Device{}, "measure", Stream::Mode::measuring);
  Arenas arenas = Arenas::measure(Device{});
  Inference inference({.model = model}, stream, arenas);
  return weight_slices(inference.params());
}

}  // namespace

StreamedWeights::StreamedWeights(const ModelSource& checkpoint)
    : path_(checkpoint.path),
      manifest_(read_manifest(checkpoint.path)),
      slices_(parameters_of(checkpoint.model)) {
  std::unordered_map<std::string_view, StateSlice*> by_name;
  for (auto& slice : slices_)
    by_name.emplace(slice.name, &slice);
  // Offset of each parameter in its tensor.
  std::unordered_map<std::string_view, std::int64_t> places;
  std::int64_t most = 0;
  for (const auto& tensor : huggingface_tensors(checkpoint.model)) {
    std::int64_t end = 0;
    for (const auto& parameter : tensor.parameters) {
      auto* slice = by_name.at(parameter);
      places.emplace(slice->name, end);
      end += slice->local.elements();
    }
    most = std::max(most, end);
  }
  room_here(Device{}).require({.pinned = most * 4}, "use a host with more memory");
  memory_.resize(static_cast<std::size_t>(most));
  for (auto& slice : slices_) {
    slice.local.data = reinterpret_cast<std::byte*>(memory_.data() + places.at(slice.name));
    slice.fetch = [this, &slice] {
      load_checkpoint(path_, manifest_, std::span(&slice, 1), Match::subset);
    };
  }
}

}  // namespace lockstep

// WeightFiles finds the tensors of a model in the safetensors files of a Hugging Face directory:
// model.safetensors, or the files that model.safetensors.index.json names.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/families.h"

namespace lockstep {

struct FoundTensor {
  const SafetensorsFile* file = nullptr;
  const StoredTensor* stored = nullptr;

  [[noreturn]] void fail(const std::string& what) const;  // throws "PATH: at byte N: NAME WHAT"
  // Calls fail("has the shape [5, 5]; expected EXPECTED").
  [[noreturn]] void fail_shape(const std::string& expected) const;
};

class WeightFiles {
 public:
  // Throws DataError naming tensors that are missing, unexpected or duplicate. A tied model may
  // hold its embedding under the name "lm_head.weight" only.
  WeightFiles(const std::filesystem::path& directory, const ModelConfig& config);

  // Throws DataError if the tensor has another shape or a type that is not floating-point.
  const FoundTensor& operator[](const HuggingFaceTensor& tensor) const;

  // Tensors that are not in huggingface_tensors(): the head of a tied model whose embedding is
  // stored too, and buffers.
  const FoundTensor* tied_head() const { return tied_head_ ? &*tied_head_ : nullptr; }
  const std::vector<std::pair<ModelBuffer, FoundTensor>>& buffers() const { return buffers_; }

 private:
  void refuse_other_weights() const;
  void add_file(const std::string& name);
  void add_shards();
  void take_tied_head();
  void check_names() const;

  std::filesystem::path directory_;
  ModelConfig config_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, FoundTensor> tensors_;  // by the name in model/families
  std::optional<FoundTensor> tied_head_;
  std::vector<std::pair<ModelBuffer, FoundTensor>> buffers_;
};

// Throws DataError if `found` has another shape than `expected`.
void require_shape(const FoundTensor& found, const Shape& expected);

}  // namespace lockstep

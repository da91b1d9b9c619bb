// Families: what Hugging Face calls the parts of a model: the keys of config.json and the tensors
// of the weight files. The only place that knows; train/interop/huggingface reads and writes the
// files.
//
// Parameters keep their Hugging Face names and shapes. GPT-2 is the exception: its files fuse q, k
// and v and hold matrices as [inputs, outputs]; here they are parameters of their own, as
// [outputs, inputs].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/tensor.h"
#include "model/config.h"

namespace lockstep {

// The model that a config.json describes. `file` is named in messages. Throws DataError where a key
// is missing, wrong, or asks for something that this engine does not compute.
ModelConfig config_from_huggingface(const Json& json, const std::string& file);

// A config.json from which `transformers` builds the same model.
Json config_to_huggingface(const ModelConfig& config);

// Names of parameters, without ".weight" and ".bias".
struct ModelNames {
  std::string embedding, positions, final_norm, head;
};
struct LayerNames {
  std::string norm1, q, k, v, q_norm, k_norm, out, norm2, gate, up, down;
};
ModelNames model_names(Family family);
LayerNames layer_names(Family family, std::int64_t layer);

// One tensor of a weight file. Its parameters lie side by side along their dimension 0 (the
// outputs): along dimension 0 of the tensor, or, where it is transposed, along dimension 1.
struct HuggingFaceTensor {
  std::string name;                     // "transformer.h.0.attn.c_attn.weight"
  Shape shape;                          // as it lies in the file
  bool transposed = false;              // a matrix as [inputs, outputs]
  std::vector<std::string> parameters;  // usually one: itself
};

// Every tensor of a model's files, layer by layer. A tied head is not among them.
std::vector<HuggingFaceTensor> huggingface_tensors(const ModelConfig& config);

// The name under which huggingface_tensors() lists what a file calls `stored`: files of a model
// without its head leave out "transformer." or "model.".
std::string listed_name(Family family, std::string_view stored);

// A tensor that files of older versions of `transformers` hold beside the parameters, though the
// configuration says all of it.
enum class ModelBuffer : std::uint8_t {
  causal_mask,      // [.., n, n]: 1 where a query sees a key
  masked_score,     // of one element: the score of a key that is not seen
  rope_frequencies  // [head_size / 2]
};
// The buffer of `config` that a file calls `stored`; nothing for any other name.
std::optional<ModelBuffer> model_buffer(const ModelConfig& config, std::string_view stored);

}  // namespace lockstep

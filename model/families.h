// Families maps the parts of a model to Hugging Face's names: the keys of config.json and the
// tensors of the weight files. No other file knows these names; train/interop/huggingface reads and
// writes the files.
//
// Parameters keep their Hugging Face names and shapes, except in GPT-2. Its files fuse q, k and v
// and hold matrices as [inputs, outputs]; here they are separate parameters, as [outputs, inputs].
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

// Returns the model that a config.json describes. Messages name `file`. Throws DataError if a key
// is missing or wrong, or requires something that this engine does not compute.
ModelConfig config_from_huggingface(const Json& json, const std::string& file);

// Returns a config.json from which `transformers` builds the same model.
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

// One tensor of a weight file. Its parameters are concatenated along their dimension 0 (the
// outputs): along dimension 0 of the tensor, or along dimension 1 if it is transposed.
struct HuggingFaceTensor {
  std::string name;                     // "transformer.h.0.attn.c_attn.weight"
  Shape shape;                          // shape in the file
  bool transposed = false;              // true: a matrix stored as [inputs, outputs]
  std::vector<std::string> parameters;  // usually one: the tensor itself
};

// Every tensor of a model's files, layer by layer, except a tied head.
std::vector<HuggingFaceTensor> huggingface_tensors(const ModelConfig& config);

// The name under which huggingface_tensors() lists the tensor that a file calls `stored`. Files of
// a model without its head omit "transformer." or "model.".
std::string listed_name(Family family, std::string_view stored);

// A tensor that files of older versions of `transformers` contain besides the parameters, although
// it follows from the configuration.
enum class ModelBuffer : std::uint8_t {
  causal_mask,      // [.., n, n]: 1 if a query sees a key
  masked_score,     // one element: the score of a key that is not seen
  rope_frequencies  // [head_size / 2]
};
// Returns the buffer of `config` that a file calls `stored`; nullopt for any other name.
std::optional<ModelBuffer> model_buffer(const ModelConfig& config, std::string_view stored);

}  // namespace lockstep

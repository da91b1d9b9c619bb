// Recognition of model formats that this program does not read, with advice on converting each.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "core/json.h"

namespace lockstep {

// A format, such as "a GGUF file", and a sentence on how to convert it.
struct ForeignModel {
  std::string what, advice;
};

// Recognises a `path` that find_model() does not read: an id of the Hugging Face Hub, an address,
// one file of a directory, GGUF, an adapter, or a file of PyTorch or Meta. Returns empty members if
// nothing is recognised. Only `what` is empty if no file of that name exists.
ForeignModel foreign_model(const std::filesystem::path& path);

// Returns the error for weight files with the tensor names `unexpected`. Names of quantised
// weights, of adapters, and with the prefix of a wrapper such as torch.compile are recognised.
// Empty if nothing is recognised.
std::string advice_on_names(std::span<const std::string> unexpected);

// Throws DataError if the weights of a Hugging Face directory are quantised, or if the directory
// has an adapter. `config` is the parsed config.json.
void require_plain_weights(const std::filesystem::path& directory, const Json& config);

// Returns the end of an error for a directory with a config.json and no safetensors weights: what
// it holds instead, and how to convert that.
std::string advice_without_weights(const std::filesystem::path& directory);

}  // namespace lockstep

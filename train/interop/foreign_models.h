// Recognition of the forms of a model that people name and this program does not read, and how to
// convert each.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "core/json.h"

namespace lockstep {

// A form of a model, "a GGUF file", and a sentence that says how to convert it.
struct ForeignModel {
  std::string what, advice;
};

// What `path` is, if find_model() does not read it: an id of the Hugging Face Hub, an address, one
// file of a directory, GGUF, an adapter, a file of PyTorch's or Meta's. Empty if nothing is
// recognised; only `what` is empty if nothing of that name exists.
ForeignModel foreign_model(const std::filesystem::path& path);

// The error of a model whose files have the tensors `unexpected` by their names: of quantised
// weights, of an adapter, or with the prefix of a wrapper such as torch.compile. Empty if nothing
// is recognised.
std::string advice_on_names(std::span<const std::string> unexpected);

// Throws DataError if the weights beside `config`, the config.json of a Hugging Face directory, are
// quantised, or an adapter lies beside them.
void require_plain_weights(const std::filesystem::path& directory, const Json& config);

// What the directory of a config.json holds in place of weights in safetensors, and how to convert
// it: the end of an error.
std::string advice_without_weights(const std::filesystem::path& directory);

}  // namespace lockstep

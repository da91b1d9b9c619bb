// TokenIds: the ids with which `transformers` begins a text, ends it and pads a batch:
// bos_token_id, eos_token_id and pad_token_id of config.json and generation_config.json. Training
// does not read them. Without its eos_token_id an exported model never stops generating in
// `transformers`.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/json.h"

namespace lockstep {

struct TokenIds {
  Json bos, eos, pad;  // an integer, for eos also a list of integers; null: unknown

  bool any() const { return !bos.is_null() || !eos.is_null() || !pad.is_null(); }
  void set(Json& config) const;  // sets the three members of `config`
};

// Finds the ids in a directory with the files of a model or a tokenizer. Each id is the first found
// of generation_config.json, config.json, and the token that tokenizer_config.json or
// special_tokens_map.json names. `eos` always includes the tokenizer's eos_token. Ids that are not
// below `vocabulary`, and files that cannot be read, are ignored with a warning.
TokenIds token_ids(const std::filesystem::path& directory, std::int64_t vocabulary);

// Returns `config`, the text of a generation_config.json, with these ids set if they differ.
std::string with_token_ids(const std::string& config, const TokenIds& ids);

// Returns `config` with the ids of MODEL/config.json that it lacks.
std::string with_token_ids_of(const std::filesystem::path& model, const std::string& config);

inline constexpr const char* kGenerationConfig = "generation_config.json";
// The generation_config.json that `transformers` makes from a config.json, before ids are added.
inline constexpr const char* kGenerationConfigOfModel = R"({"_from_model_config": true})";

}  // namespace lockstep

// TokenIds are the ids by which `transformers` begins a text, ends it and pads a batch:
// bos_token_id, eos_token_id and pad_token_id of config.json and generation_config.json. Training
// reads none of them; a model that is exported without its eos_token_id never stops there.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/json.h"

namespace lockstep {

struct TokenIds {
  Json bos, eos, pad;  // an integer, for eos also a list of them; null: not known

  bool any() const { return !bos.is_null() || !eos.is_null() || !pad.is_null(); }
  void set(Json& config) const;  // its three members
};

// Of a directory with a model's or a tokenizer's files: each by generation_config.json, else by
// config.json, else by the token that tokenizer_config.json or special_tokens_map.json names. The
// eos_token of the tokenizer is always among those of `eos`. An id that is not below `vocabulary`
// is left out, with a warning; so is what a file that cannot be read says.
TokenIds token_ids(const std::filesystem::path& directory, std::int64_t vocabulary);

// `config`, the text of a generation_config.json, with these ids where they differ from what it
// says.
std::string with_token_ids(const std::string& config, const TokenIds& ids);

// The same, with the ids of MODEL/config.json that it lacks.
std::string with_token_ids_of(const std::filesystem::path& model, const std::string& config);

inline constexpr const char* kGenerationConfig = "generation_config.json";
// A generation_config.json that has no more than the ids of a config.json, without them yet: as
// `transformers` makes it.
inline constexpr const char* kGenerationConfigOfModel = R"({"_from_model_config": true})";

}  // namespace lockstep

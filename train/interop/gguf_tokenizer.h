// The tokenizer of a model as metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <string>

#include "train/interop/gguf_file.h"
#include "train/interop/token_ids.h"

namespace lockstep {

// Adds the tokens, merges, special tokens and chat template of `what` (see open_tokenizer) for a
// model of `vocabulary` tokens. Throws DataError if llama.cpp would give a text other tokens, for
// example for a pattern of words that it has no name for.
void add_gguf_tokenizer(GgufMetadata& metadata, const std::string& what, const TokenIds& ids,
                        std::int64_t vocabulary);

}  // namespace lockstep

// Shards of datatrove, which nanotron reads too:
//   NAME.ds           tokens without a header, u16 or u32
//   NAME.ds.index     u64[], where documents end
//   NAME.ds.metadata  text, optional: "TOKENIZER|BYTES PER TOKEN", the number of tokens, the same
//                     number for people
//   NAME.ds.loss      optional, one byte per token
// Source: datatrove, src/datatrove/pipeline/tokens/tokenizer.py.
#pragma once

#include <string>

#include "data/token_file.h"

namespace lockstep {

// Returns the format of a .ds of `token_bytes` bytes. The last end in `index` is the number of
// tokens, so the size tells whether a token has 2 or 4 bytes. Throws DataError if it has neither.
TokenFormat datatrove_format(std::int64_t token_bytes, const ReadFile& index);

// Throws DataError if the metadata contradict the format or the number of tokens.
void check_datatrove_metadata(const ReadFile& metadata, const TokenFormat& format,
                              std::int64_t tokens);

std::string datatrove_metadata(const std::string& tokenizer, int token_bytes, std::int64_t tokens);

}  // namespace lockstep

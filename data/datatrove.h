// datatrove's shards (also nanotron's): NAME.ds, headerless u16 or u32, and beside it
// NAME.ds.index, u64[] of where documents end; NAME.ds.metadata, text, "TOKENIZER|BYTES A TOKEN",
// tokens, and the latter for people; NAME.ds.loss, a byte a token. The last two need not be there.
// Source: datatrove, src/datatrove/pipeline/tokens/tokenizer.py.
#pragma once

#include <string>

#include "data/token_file.h"

namespace lockstep {

// The format of `tokens` bytes of which the documents end as `index` says: the last end is the
// number of tokens, so the size says whether one has 2 bytes or 4. Throws DataError where it is
// neither.
TokenFormat datatrove_format(std::int64_t token_bytes, const ReadFile& index);

// Throws DataError where the metadata say other than the format and the number of tokens.
void check_datatrove_metadata(const ReadFile& metadata, const TokenFormat& format,
                              std::int64_t tokens);

std::string datatrove_metadata(const std::string& tokenizer, int token_bytes, std::int64_t tokens);

}  // namespace lockstep

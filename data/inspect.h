// inspect: what is in a dataset, for people.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"
#include "data/tokenizer.h"

namespace lockstep {

// Format, counts, lengths of documents, and `count` tokens from token `at` on: as text by
// `tokenizer`, as ids where that is null. Where there are masks, what counts in the loss stands in
// {+ and +}. Without a list of document ends, lengths are counted in the first `most_scanned`
// tokens. Throws UsageError when `at` lies behind the end, or the tokenizer is not the dataset's.
std::string inspect(const Dataset& dataset, const Tokenizer* tokenizer, std::int64_t at,
                    std::int64_t count, std::int64_t most_scanned = std::int64_t{1} << 28);

}  // namespace lockstep

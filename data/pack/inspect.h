// inspect: what is in a dataset, for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

// Format, counts, lengths of documents, and the first `count` tokens; or, where `at` is given, as
// many from that token on, behind what its document has in front of it, at most `count` too: token
// `at` stands in [> and <]. As text by `tokenizer`, as ids where that is null. Where there are
// masks, what counts in the loss stands in {+ and +}. Without a list of document ends, lengths are
// counted in the first `most_scanned` tokens, and the number of a document behind them is not
// known. Throws UsageError when there is no token `at`, or the tokenizer is not the dataset's.
std::string inspect(const Dataset& dataset, const Tokenizer* tokenizer,
                    std::optional<std::int64_t> at, std::int64_t count,
                    std::int64_t most_scanned = std::int64_t{1} << 28);

}  // namespace lockstep

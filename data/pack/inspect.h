// inspect describes a dataset for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep {

// Returns format, counts, lengths of documents, and the first `count` tokens. With `at`, it shows
// the tokens around that token instead:
// - at most `count` tokens of its document before it, and `count` tokens from it on
// - token `at` itself in [> and <]
// Tokens are text with `tokenizer`, ids if it is null. With masks, tokens that count in the loss
// are in {+ and +}. Without a list of document ends, lengths are counted in the first
// `most_scanned` tokens, and later documents have no number. Throws UsageError if token `at` does
// not exist, or if the tokenizer does not match the dataset.
std::string inspect(const Dataset& dataset, const Tokenizer* tokenizer,
                    std::optional<std::int64_t> at, std::int64_t count,
                    std::int64_t most_scanned = std::int64_t{1} << 28);

}  // namespace lockstep

// inspect: what is in a dataset, for people.
#pragma once

#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace lockstep {

// Format, counts, lengths of documents, and `count` tokens from token `at` on: text where they are
// bytes, ids where they are not. Without a list of document ends, lengths are counted in the first
// `most_scanned` tokens. Throws UsageError when `at` lies behind the end.
std::string inspect(const Dataset& dataset, std::int64_t at, std::int64_t count,
                    std::int64_t most_scanned = std::int64_t{1} << 28);

}  // namespace lockstep

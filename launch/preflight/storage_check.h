// The storage check writes a file bypassing the page cache, reads it back and compares it.
#pragma once

#include <filesystem>

#include "launch/preflight/preflight_rank.h"

namespace lockstep {

struct StorageRates {  // bytes per second of this rank; 0: not measured
  double read = 0, write = 0;
};
// Writes and reads one file per rank in the directory `scratch`, for at most `most_seconds` each. A
// collective call.
StorageRates check_storage(PreflightRank& rank, const std::filesystem::path& scratch,
                           double most_seconds = 20);

}  // namespace lockstep

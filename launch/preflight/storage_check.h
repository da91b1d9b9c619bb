// Check of storage: a file that is written past the cache, read back and compared.
#pragma once

#include <filesystem>

#include "launch/preflight/preflight_rank.h"

namespace lockstep {

struct StorageRates {  // bytes a second of this rank; 0: not measured
  double read = 0, write = 0;
};
// All ranks at once, a file each in the folder `scratch`; of slow storage as much as is written and
// read in the time there is.
StorageRates check_storage(PreflightRank& rank, const std::filesystem::path& scratch,
                           double most_seconds = 20);

}  // namespace lockstep

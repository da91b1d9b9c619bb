// A check of the renames that checkpoints and epochs need.
#pragma once

#include <filesystem>

namespace lockstep {

// Works in the new directory `place`, for a few milliseconds, and removes it. Throws ConfigError,
// which names `shown`, if several processes could rename a directory to one name, or if a file is
// absent while another one replaces it.
void check_renames(const std::filesystem::path& place, const std::filesystem::path& shown);

}  // namespace lockstep

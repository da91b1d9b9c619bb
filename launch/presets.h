// Presets are the configurations that come with the program: configs/NAME.toml beside the source,
// or share/lockstep/configs/NAME.toml of an installation.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// Returns the file of a preset if `named` is its name, else `named`. Throws ConfigError if `named`
// is neither a file nor a preset and does not look like a path.
std::filesystem::path config_file(const std::filesystem::path& named);

// The name and the first line of each preset, one a line. Throws DataError if there are none.
std::string list_of_presets();

}  // namespace lockstep

// Addresses of local files, as RFC 8089 defines them. They name datasets on a shared file system
// that are read through the cache of each host.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

// Returns the path of file:///PATH, file:/PATH or file://localhost/PATH; nullopt for an address of
// another scheme. %XX is decoded, except in the last part: file names are written as in
// dataset.json. Throws AccessError for a relative path, another host or an invalid %XX.
std::optional<std::filesystem::path> path_of_file_address(const std::string& address);

}  // namespace lockstep

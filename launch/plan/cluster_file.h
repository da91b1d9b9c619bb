// Reads a Cluster from a file: hand-written TOML (configs/clusters/), or the cluster.json of
// `lockstep preflight`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "launch/plan/cluster.h"

namespace lockstep {

// Text that begins with { is JSON. Errors in TOML throw ConfigError "FILE:LINE: ..." with the key,
// the expectation and, for an unknown key, the nearest known one. Errors in JSON throw DataError
// "FILE: ...".
Cluster load_cluster(const std::filesystem::path& file);
Cluster cluster_of(std::string_view text, const std::string& file);

std::string known_gpus();  // "A100, H100": names that hardware_of accepts

// Finds "H100" or "NVIDIA H100". Throws ConfigError "ORIGIN: ..." with the list of known GPUs.
const Hardware& hardware_of(const std::string& gpu, const std::string& origin);

}  // namespace lockstep

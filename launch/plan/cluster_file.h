// A Cluster from a file: TOML that a person wrote (configs/clusters/), or the cluster.json of
// `lockstep preflight`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "launch/plan/cluster.h"

namespace lockstep {

// Text that begins with { is JSON. Throws ConfigError "FILE:LINE: ..." on TOML, with the key, what
// was expected and, for an unknown key, the nearest one; and DataError "FILE: ..." on JSON.
Cluster load_cluster(const std::filesystem::path& file);
Cluster cluster_of(std::string_view text, const std::string& file);

std::string known_gpus();  // "A100, H100": names that hardware_of takes

// "H100" or "NVIDIA H100". Throws ConfigError "ORIGIN: ..." that lists those that are known.
const Hardware& hardware_of(const std::string& gpu, const std::string& origin);

}  // namespace lockstep

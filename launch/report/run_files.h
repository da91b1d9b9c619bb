// What a run's directory says of its configuration and of what computed it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep {

struct ConfigurationValue {
  std::string key;     // "train.steps"
  std::string value;   // as TOML
  std::string origin;  // "configs/a.toml:12", "--set", "default: ..."; empty: not said
};

// RUN/config.toml, values that followed from others included; none where there is no such file.
// Throws ConfigError or DataError where it is damaged.
std::vector<ConfigurationValue> read_configuration(const std::filesystem::path& run);

// train.steps of it.
std::optional<std::int64_t> planned_steps(const std::vector<ConfigurationValue>& configuration);

// What is known of device, libraries and threads: from numerics.json, and from the newest
// checkpoint. Throws DataError where one of them is damaged.
std::vector<std::pair<std::string, std::string>> read_environment(const std::filesystem::path& run);

}  // namespace lockstep

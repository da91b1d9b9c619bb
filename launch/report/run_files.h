// Reads the configuration and the environment of a run from its directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep {

struct ConfigurationValue {
  std::string key;     // "train.steps"
  std::string value;   // as TOML
  std::string origin;  // "configs/a.toml:12", "--set", "default: ..."; empty: unknown
};

// Reads RUN/config.toml with derived values. Returns no values if the file does not exist. Throws
// ConfigError or DataError if it is damaged.
std::vector<ConfigurationValue> read_configuration(const std::filesystem::path& run);

// The value of train.steps.
std::optional<std::int64_t> planned_steps(const std::vector<ConfigurationValue>& configuration);

// Facts about device, libraries and threads, from numerics.json and the newest checkpoint, and the
// rollbacks, skipped ranges and extensions that this checkpoint lists. Throws DataError if one of
// the files is damaged.
std::vector<std::pair<std::string, std::string>> read_environment(const std::filesystem::path& run);

// The files metrics.before-K.jsonl, by K.
std::map<int, std::filesystem::path> abandoned_metrics(const std::filesystem::path& run);

}  // namespace lockstep

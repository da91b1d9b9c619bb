// What a run is configured with, and where each value came from.
//
// Precedence: the command line, then the environment, then the file, then defaults. A variable
// LOCKSTEP_TABLE_KEY sets table.key (LOCKSTEP_TRAIN_STEPS=100).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "train/config.h"

namespace lockstep {

// A value from outside the file: TOML, or a bare word for a string.
struct Setting {
  std::string key, value;
  std::string origin;  // "--set", "environment LOCKSTEP_TRAIN_STEPS"
};

// "table.key=value" of --set. Throws UsageError where there is no '='.
Setting parse_setting(std::string_view text);

// The variables among "NAME=value" that set keys. Throws ConfigError on LOCKSTEP_TABLE_KEY without
// such a key, and on a name like it that is near to one.
std::vector<Setting> environment_settings(const char* const* environment);

struct ResolvedConfig {
  Config values;
  std::map<std::string, std::string, std::less<>> origins;  // by key: "configs/a.toml:12"
};

// Settings in rising precedence; of a run of as many ranks. Throws ConfigError that names where the
// value was written, the key, what was expected and, for an unknown key, the nearest one.
ResolvedConfig resolve_config(std::string_view text, const std::string& name,
                              const std::vector<Setting>& settings, int ranks = 1);

// The same from a file and this process's environment.
ResolvedConfig load_config(const std::filesystem::path& file,
                           const std::vector<Setting>& command_line, int ranks = 1);

// What the ranks make of layout.shard or layout.replicate, where the configuration sets another
// axis alone: "layout.shard is not set: it is 32 (256 ranks / ...)". Otherwise empty.
std::string derived_axis_in_words(const ResolvedConfig& config, std::int64_t ranks_per_host);

// The whole configuration as TOML that resolves to equal values, with origins as comments.
std::string to_toml(const ResolvedConfig& config);

// The table [model] that describes a model: for a run that starts from its weights.
std::string model_to_toml(const ModelConfig& model);

// The values alone, as checkpoints keep them: {"train.steps": 1000, ...}; and back, with `origin`
// as the origin of each.
Json to_json(const ResolvedConfig& config);
ResolvedConfig config_from_json(const Json& json, const std::string& origin);

// docs/configuration.md.
std::string configuration_reference();

}  // namespace lockstep

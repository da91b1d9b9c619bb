// Resolves the configuration of a run, and records the origin of each value.
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
#include "core/toml.h"
#include "train/config.h"
#include "train/run/amendments.h"

namespace lockstep {

// A value from outside the file: TOML, or a bare word for a string.
struct Setting {
  std::string key, value;
  std::string origin;  // "--set", "environment LOCKSTEP_TRAIN_STEPS"
};

// Parses "table.key=value" of --set. Throws UsageError if there is no '='.
Setting parse_setting(std::string_view text);

// Collects the variables that set keys from entries "NAME=value". Throws ConfigError for
// LOCKSTEP_TABLE_KEY if the table has no such key, and for other names close to a known one.
std::vector<Setting> environment_settings(const char* const* environment);

struct Option;
TomlValue value_of(const Setting& setting, const Option& option);  // throws ConfigError

// A table [[phase]], see launch/phases.h.
struct Phase {
  std::int64_t from_step = 0;     // the steps after it are of the phase
  Config values;                  // of its steps
  bool restarts = false;          // it begins in the run, and changes more than the learning rate
  std::string begin;              // "from_tokens = 2000000"; "": of a live change alone
  std::vector<Setting> settings;  // as written
};

struct ResolvedConfig {
  Config values;                                            // of the first phase
  std::map<std::string, std::string, std::less<>> origins;  // by key: "configs/a.toml:12"
  std::vector<Phase> phases;                                // later phases, in order
};

// Resolves a configuration for this number of ranks; later settings override earlier ones.
// precision.compute = "auto" becomes `automatic` (launch/device.h). Throws ConfigError with the
// origin of the value, the key, the expectation and, for an unknown key, the nearest known one.
//   changes: of the live run, see changes_of(); each acts as a further [[phase]]
ResolvedConfig resolve_config(std::string_view text, const std::string& name,
                              const std::vector<Setting>& settings, int ranks = 1,
                              DType automatic = DType::fp32, const Amendments& changes = {});

// The text of a configuration, and the settings from outside that override it.
struct ConfigText {
  std::string text, name;
  std::vector<Setting> settings;
};
// Reads a file or a preset (launch/presets.h), and the environment of this process.
ConfigText read_config(const std::filesystem::path& named,
                       const std::vector<Setting>& command_line);

// Reads and resolves a configuration.
ResolvedConfig load_config(const std::filesystem::path& named,
                           const std::vector<Setting>& command_line, int ranks = 1,
                           DType automatic = DType::fp32);

inline constexpr std::string_view kAutomatic = " (auto)";  // ends the origin of such a value

// Describes layout.shard or layout.replicate if it was derived from the number of ranks because the
// configuration sets only another axis: "layout.shard is not set: it is 32 (256 ranks / ...)".
// Otherwise returns "".
std::string derived_axis_in_words(const ResolvedConfig& config, std::int64_t ranks_per_host);

// The whole configuration as TOML that resolves to equal values, with origins as comments.
std::string to_toml(const ResolvedConfig& config);

// The table [model] of a model, for a run that starts from its weights.
std::string model_to_toml(const ModelConfig& model);

// A value as TOML, with one element of an array per line.
std::string toml_text(const TomlValue& value);

// Converts values to the form that checkpoints keep, {"train.steps": 1000, ...}, and back with
// `origin` as the origin of each value.
Json to_json(const Config& config);
ResolvedConfig config_from_json(const Json& json, const std::string& origin);

// The text of docs/configuration.md.
std::string configuration_reference();

}  // namespace lockstep

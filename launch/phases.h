// Phases of a run: the tables [[phase]] of a configuration. A phase has the settings of the one
// before it, and its own.
#pragma once

#include <string>

#include "core/function_ref.h"
#include "core/toml.h"
#include "launch/config.h"

namespace lockstep {

// Resolves the tables [[phase]] of the file `name` into `base.phases`. All values get the whole
// schedule (Config::rate_phases, train.steps). Throws ConfigError with the line.
//   resolve(settings): the configuration with more settings
void resolve_phases(const TomlTables& tables, const std::string& name, ResolvedConfig& base,
                    FunctionRef<ResolvedConfig(const std::vector<Setting>& settings)> resolve);

inline constexpr std::string_view kOfPhase = " (phase ";  // in the origin of its settings

// The tables as TOML.
std::string to_toml(const std::vector<Phase>& phases);

}  // namespace lockstep

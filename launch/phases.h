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
//   changes            of the live run. Each is a further phase, or a part of the phase that begins
//                      after the same step. It overrides --set and the environment. Fewer keys may
//                      change, and of data.source only the weights
//   resolve(settings): the configuration with more settings
void resolve_phases(const TomlTables& tables, const Amendments& changes, const std::string& name,
                    ResolvedConfig& base,
                    FunctionRef<ResolvedConfig(const std::vector<Setting>& settings)> resolve);

inline constexpr std::string_view kOfPhase = " (phase ";  // in the origin of its settings

// The tables of the configuration as TOML.
std::string to_toml(const std::vector<Phase>& phases);

}  // namespace lockstep

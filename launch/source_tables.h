// Reads, checks and prints the tables [[data.source]]. No other key holds tables.
#pragma once

#include <string>
#include <vector>

#include "core/toml.h"
#include "data/source.h"

namespace lockstep {

// An error and its line (0: no particular line). If `what` is empty, `sources` is set.
struct WrongSource {
  std::string what;
  int line = 0;
};
WrongSource read_sources(const TomlTables& tables, std::vector<DataSource>& sources);

// Formats sources as an array of inline tables, one per line.
std::string sources_to_toml(const std::vector<DataSource>& sources);

// Formats a list of strings, one per line if there are several.
std::string list_to_toml(const std::vector<std::string>& list);

}  // namespace lockstep

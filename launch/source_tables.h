// The tables [[data.source]], the one key that holds tables: read, checked and printed.
#pragma once

#include <string>
#include <vector>

#include "core/toml.h"
#include "data/source.h"

namespace lockstep {

// What was wrong, and in which line (0: of no one table); or nothing, and `sources` is set.
struct WrongSource {
  std::string what;
  int line = 0;
};
WrongSource read_sources(const TomlTables& tables, std::vector<DataSource>& sources);

// As an array of inline tables, one a line.
std::string sources_to_toml(const std::vector<DataSource>& sources);

// A list of strings, one a line where there are several.
std::string list_to_toml(const std::vector<std::string>& list);

}  // namespace lockstep

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/config.h"

namespace lockstep {

struct ConfigOptions {
  std::filesystem::path config;
  std::vector<Setting> settings;
  std::string model;       // print the table that describes this model instead
  bool reference = false;  // print docs/configuration.md instead
};

// Prints the resolved configuration, with where each value came from, to standard output.
int run_config(const ConfigOptions& options);

}  // namespace lockstep

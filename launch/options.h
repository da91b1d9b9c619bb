// Options: the table of all configuration keys. It drives parsing, checking, printing,
// `lockstep config` and docs/configuration.md.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/toml.h"
#include "train/config.h"

namespace lockstep {

// An enumeration member of Config: its value, and the names indexed by value.
struct Choice {
  unsigned char* value;
  std::span<const std::string_view> names;
};
using Field =
    std::variant<bool*, int*, std::int64_t*, std::uint64_t*, float*, double*, std::string*,
                 std::vector<std::string>*, std::vector<DataSource>*, Choice>;

struct Option {
  struct Range {
    double least = -std::numeric_limits<double>::infinity();
    double most = std::numeric_limits<double>::infinity();
    bool above_least = false;  // excludes least itself
  };

  std::string_view key;               // "train.steps"
  Field (*field)(Config&);            // accessor of the value
  Range range;                        // range of a number
  std::string_view unit;              // "tokens"; empty: no unit
  std::string_view help;              // the meaning
  std::string_view rule{};            // default in words if it depends on other keys; or "required"
  void (*derive)(Config&) = nullptr;  // sets that default, after the keys of earlier options

  std::string_view table() const { return key.substr(0, key.find('.')); }
  std::string_view name() const { return key.substr(key.find('.') + 1); }
  bool required() const { return rule == "required"; }
};

std::span<const Option> options();  // in the order of their tables
const Option* find_option(std::string_view key);

// Sets the member of the option. Returns the error ("expected an integer, found true") or "";
// `line` becomes the line of the error in a value of several lines.
std::string assign(const Option& option, Config& config, const TomlValue& value,
                   int* line = nullptr);

std::string expected(const Option& option);                       // "an integer, at least 1"
std::string to_toml(const Option& option, const Config& config);  // a list has one value per line

}  // namespace lockstep

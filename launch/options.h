// Options: the one table of what may be configured. It drives parsing, checking, printing,
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

// A member of Config that is an enumeration: its value and, by value, its names.
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
    bool above_least = false;  // least itself is not allowed
  };

  std::string_view key;     // "train.steps"
  Field (*field)(Config&);  // where its value lives
  Range range;              // of numbers
  std::string_view unit;    // "tokens"; empty: a plain number
  std::string_view help;    // one sentence
  std::string_view rule{};  // the default in words, where it depends on other keys; "required"
  void (*derive)(Config&) = nullptr;  // sets that default; keys of earlier options are set

  std::string_view table() const { return key.substr(0, key.find('.')); }
  std::string_view name() const { return key.substr(key.find('.') + 1); }
  bool required() const { return rule == "required"; }
};

std::span<const Option> options();  // in the order of their tables
const Option* find_option(std::string_view key);

// Sets the option's member. Returns what was wrong ("expected an integer, found true"), or nothing;
// `line` becomes that of the wrong part of a value of many lines.
std::string assign(const Option& option, Config& config, const TomlValue& value,
                   int* line = nullptr);

std::string expected(const Option& option);                       // "an integer, at least 1"
std::string to_toml(const Option& option, const Config& config);  // its value; a list one a line

}  // namespace lockstep

// Toml: a TOML document as a flat list of keys with their lines. The library that parses stays
// inside toml.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.h"

namespace lockstep {

struct TomlOther {   // a value of a kind that no key takes
  std::string kind;  // "a date", "an array of more than strings"
};
struct TomlEntry;
struct TomlTables {  // an array of tables: [[data.source]]
  std::vector<std::vector<TomlEntry>> tables;
};
using TomlValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>,
                               TomlTables, TomlOther>;

struct TomlEntry {
  std::string key;  // "table.key"; a part that is not a bare key keeps its quotes
  TomlValue value;
  int line = 0;  // from 1
};

struct TomlDocument {
  struct Table {
    std::string name;
    int line = 0;
  };
  std::vector<Table> tables;  // all that are named, empty ones too
  std::vector<TomlEntry> entries;
};

// Throws ConfigError "NAME:LINE: ..." on what is not TOML, and on lines longer than 4096 bytes
// (a key of many parts nests as deep as it is long).
TomlDocument parse_toml(std::string_view text, const std::string& name);

// The text as one TOML value; nothing when it is none.
std::optional<TomlValue> parse_toml_value(std::string_view text);

std::string describe(const TomlValue& value);    // "the string \"fast\"", "the integer 5"
std::string toml_quoted(std::string_view text);  // a basic string
std::string toml_number(double value);           // the shortest that reads back equal
std::string toml_number(float value);

}  // namespace lockstep

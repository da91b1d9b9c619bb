// Toml reads a TOML document as a flat list of keys with lines. Only toml.cpp uses the TOML
// library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.h"

namespace lockstep {

struct TomlOther {   // a value of a type that no key accepts
  std::string kind;  // "a date or time"
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
  std::vector<Table> tables;  // all named tables, also empty ones
  std::vector<TomlEntry> entries;
};

// Throws ConfigError "NAME:LINE: ..." on invalid TOML, and on lines longer than 4096 bytes. The
// limit bounds the nesting of keys with many parts.
TomlDocument parse_toml(std::string_view text, const std::string& name);

// The text as one TOML value; nullopt if it is not a value.
std::optional<TomlValue> parse_toml_value(std::string_view text);

std::string describe(const TomlValue& value);    // "the string \"fast\"", "the integer 5"
std::string toml_quoted(std::string_view text);  // the text as a basic string
std::string toml_number(double value);           // shortest text that reads back equal
std::string toml_number(float value);

}  // namespace lockstep

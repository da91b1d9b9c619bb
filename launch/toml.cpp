#include "launch/toml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <toml++/toml.h>

namespace lockstep {
namespace {

constexpr std::size_t kLongestLine = 4096;

std::string key_part(std::string_view part) {
  const auto bare = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  const bool plain = !part.empty() && std::all_of(part.begin(), part.end(), bare);
  return plain ? std::string(part) : toml_quoted(part);
}

TomlValue array_value(const toml::array& array) {
  std::vector<std::string> strings;
  for (const auto& element : array) {
    const auto* text = element.as_string();
    if (text == nullptr) return TomlOther{"an array of more than strings"};
    strings.push_back(text->get());
  }
  return strings;
}

TomlValue value_of(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_array()) return array_value(*value);
  if (node.is_table()) return TomlOther{"a table"};
  return TomlOther{"a date or time"};
}

int line_of(const toml::node& node) {
  return static_cast<int>(node.source().begin.line);
}

void flatten(const toml::table& table, const std::string& prefix, TomlDocument& document) {
  for (const auto& [key, node] : table) {
    const auto full = prefix + key_part(key.str());
    if (const auto* inner = node.as_table()) {
      document.tables.push_back({full, line_of(*inner)});
      flatten(*inner, full + ".", document);
    } else {
      document.entries.push_back({full, value_of(node), line_of(node)});
    }
  }
}

template <class Number>
std::string shortest(Number value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), value).ptr;
  std::string text(digits.begin(), end);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return text.size() <= kMost ? toml_quoted(text) : toml_quoted(text.substr(0, kMost)) + "...";
}

void check_lines(std::string_view text, const std::string& name) {
  int line = 1;
  while (!text.empty()) {
    const auto length = std::min(text.find('\n'), text.size());
    if (length > kLongestLine)
      throw ConfigError(
          str(name, ":", line, ": a line of ", length, " bytes, expected at most ", kLongestLine));
    text.remove_prefix(std::min(length + 1, text.size()));
    ++line;
  }
}

}  // namespace

TomlDocument parse_toml(std::string_view text, const std::string& name) {
  check_lines(text, name);
  try {
    TomlDocument document;
    flatten(toml::parse(text), "", document);
    return document;
  } catch (const toml::parse_error& e) {
    throw ConfigError(str(name, ":", e.source().begin.line, ": not TOML: ", e.description()));
  }
}

std::optional<TomlValue> parse_toml_value(std::string_view text) {
  if (text.size() > kLongestLine || text.find('\n') != text.npos) return std::nullopt;
  try {
    const auto table = toml::parse(str("value = ", text));
    return value_of(*table.get("value"));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

std::string describe(const TomlValue& value) {
  struct Describe {
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(std::int64_t i) const { return str("the integer ", i); }
    std::string operator()(double d) const { return "the number " + toml_number(d); }
    std::string operator()(const std::string& s) const { return "the string " + shown(s); }
    std::string operator()(const std::vector<std::string>& list) const {
      return str("an array of ", list.size(), list.size() == 1 ? " string" : " strings");
    }
    std::string operator()(const TomlOther& other) const { return other.kind; }
  };
  return std::visit(Describe{}, value);
}

std::string toml_quoted(std::string_view text) {
  constexpr const char* kHex = "0123456789ABCDEF";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string toml_number(double value) {
  return shortest(value);
}

std::string toml_number(float value) {
  return shortest(value);
}

}  // namespace lockstep

#include "launch/options.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "launch/source_tables.h"

namespace lockstep {
namespace {

std::string number_text(double value) {
  return std::floor(value) == value && std::abs(value) < 1e10
             ? str(static_cast<std::int64_t>(value))
             : str(value);
}

std::string range_text(const Option::Range& range) {
  std::string text;
  if (std::isfinite(range.least))
    text += str(", ", range.above_least ? "more than " : "at least ", number_text(range.least));
  const bool finite = std::isfinite(range.most) && range.most < 1e15;
  if (finite) text += str(text.empty() ? ", " : " and ", "at most ", number_text(range.most));
  return text;
}

std::string names_text(std::span<const std::string_view> names) {
  std::string text;
  for (const auto& choice : names)
    text += str(text.empty() ? "" : ", ", toml_quoted(choice));
  return "one of " + text;
}

bool is_within(double value, const Option::Range& range) {
  const bool enough = range.above_least ? value > range.least : value >= range.least;
  return enough && value <= range.most;
}

// 1e3 is an integer, too. From 2^53 on, a double may not be the number that was written.
bool is_integer(double value) {
  return value == std::floor(value) && std::abs(value) < 9007199254740992.0;
}

// Has one overload per kind of member. Returns false if the member cannot hold the value.
struct Assign {
  const TomlValue& value;
  const Option::Range& range;

  bool operator()(bool* member) const { return set(member, std::get_if<bool>(&value)); }
  bool operator()(std::string* member) const {
    return set(member, std::get_if<std::string>(&value));
  }
  bool operator()(std::vector<std::string>* member) const {
    if (const auto* one = std::get_if<std::string>(&value)) {
      *member = {*one};
      return true;
    }
    return set(member, std::get_if<std::vector<std::string>>(&value));
  }
  bool operator()(std::vector<DataSource>* member) const {  // read_sources reads tables
    const auto* none = std::get_if<std::vector<std::string>>(&value);
    if (none != nullptr && none->empty()) member->clear();
    return none != nullptr && none->empty();
  }
  bool operator()(const Choice& choice) const {
    const auto* name = std::get_if<std::string>(&value);
    const auto at =
        name ? std::find(choice.names.begin(), choice.names.end(), *name) : choice.names.end();
    if (at == choice.names.end()) return false;
    *choice.value = static_cast<unsigned char>(at - choice.names.begin());
    return true;
  }
  template <class Number>
  bool operator()(Number* member) const {
    const auto* integer = std::get_if<std::int64_t>(&value);
    const auto* real = std::get_if<double>(&value);
    if (integer == nullptr && real == nullptr) return false;
    if (std::is_integral_v<Number> && real != nullptr && !is_integer(*real)) return false;
    if (!is_within(integer ? static_cast<double>(*integer) : *real, range)) return false;
    *member = integer ? static_cast<Number>(*integer) : static_cast<Number>(*real);
    return true;
  }

 private:
  template <class T>
  static bool set(T* member, const T* from) {
    if (from) *member = *from;
    return from != nullptr;
  }
};

struct Print {
  std::string operator()(const bool* member) const { return *member ? "true" : "false"; }
  std::string operator()(const float* member) const { return toml_number(*member); }
  std::string operator()(const double* member) const { return toml_number(*member); }
  std::string operator()(const std::string* member) const { return toml_quoted(*member); }
  std::string operator()(const std::vector<std::string>* member) const {
    return list_to_toml(*member);
  }
  std::string operator()(const std::vector<DataSource>* member) const {
    return sources_to_toml(*member);
  }
  std::string operator()(const Choice& choice) const {
    return toml_quoted(choice.names[*choice.value]);
  }
  template <class Integer>
  std::string operator()(const Integer* member) const {
    return str(*member);
  }
};

struct Expected {
  const Option::Range& range;

  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::string*) const { return "a string"; }
  std::string operator()(const std::vector<std::string>*) const {
    return "a string or an array of strings";
  }
  std::string operator()(const std::vector<DataSource>*) const {
    return "tables with path and weight, or path and epochs";
  }
  std::string operator()(const Choice& choice) const { return names_text(choice.names); }
  template <class Number>
  std::string operator()(const Number*) const {
    return (std::is_integral_v<Number> ? "an integer" : "a number") + range_text(range);
  }
};

}  // namespace

const Option* find_option(std::string_view key) {
  const auto all = options();
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.key == key; });
  return at == all.end() ? nullptr : &*at;
}

std::string expected(const Option& option) {
  Config config;
  return std::visit(Expected{option.range}, option.field(config));
}

std::string assign(const Option& option, Config& config, const TomlValue& value, int* line) {
  const auto field = option.field(config);
  auto* const* sources = std::get_if<std::vector<DataSource>*>(&field);
  if (const auto* tables = std::get_if<TomlTables>(&value);
      tables != nullptr && sources != nullptr) {
    const auto wrong = read_sources(*tables, **sources);
    if (line != nullptr) *line = wrong.line;
    return wrong.what;
  }
  if (std::visit(Assign{value, option.range}, field)) return "";
  return str("expected ", expected(option), "; found ", describe(value));
}

std::string to_toml(const Option& option, const Config& config) {
  Config copy = config;  // a Field needs a mutable Config
  return std::visit(Print{}, option.field(copy));
}

}  // namespace lockstep

#include "launch/source_tables.h"

#include <array>

#include "core/nearest.h"
#include "data/history.h"

namespace lockstep {
namespace {

constexpr double kMostOfTable = 1e15;

std::string read_paths(const TomlValue& value, std::vector<std::string>& paths) {
  if (const auto* one = std::get_if<std::string>(&value)) paths = {*one};
  if (const auto* many = std::get_if<std::vector<std::string>>(&value)) paths = *many;
  if (!paths.empty()) return "";
  return str("path: expected a string or an array of strings; found ", describe(value));
}

std::string read_positive(const TomlEntry& entry, double& number) {
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    number = static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&entry.value)) number = *real;
  if (number > 0 && number <= kMostOfTable) return "";
  return str(entry.key, ": expected a number above 0, found ", describe(entry.value),
             "; omit the table to exclude the dataset");
}

std::string read_entry(const TomlEntry& entry, DataSource& source) {
  if (entry.key == "path") return read_paths(entry.value, source.paths);
  if (entry.key == "weight") return read_positive(entry, source.weight);
  if (entry.key == "epochs") return read_positive(entry, source.epochs);
  static const std::array<std::string, 3> kKeys{"path", "weight", "epochs"};
  const auto near = nearest(entry.key, kKeys);
  return str("unknown key ", entry.key,
             near.empty() ? "; expected path, weight or epochs" : "; did you mean " + near + "?");
}

}  // namespace

WrongSource read_sources(const TomlTables& tables, std::vector<DataSource>& sources) {
  std::vector<DataSource> all;
  if (tables.tables.size() > kMostSources)
    return {str("expected at most ", kMostSources, " tables, found ", tables.tables.size(),
                "; list several datasets in one path"),
            0};
  for (const auto& table : tables.tables) {
    DataSource source;
    for (const auto& entry : table)
      if (auto wrong = read_entry(entry, source); !wrong.empty()) return {wrong, entry.line};
    const int line = table.empty() ? 0 : table.front().line;
    if (source.paths.empty()) return {str("table ", all.size() + 1, " has no path"), line};
    if ((source.weight > 0) == (source.epochs > 0))
      return {str("expected either weight (share of the samples) or epochs (number of passes) for "
                  "path ",
                  toml_quoted(source.paths[0])),
              line};
    if (!all.empty() && (all.front().weight > 0) != (source.weight > 0))
      return {str("expected ", all.front().weight > 0 ? "weight" : "epochs", " for path ",
                  toml_quoted(source.paths[0]),
                  ", as in the tables before it; use weight in all tables, or epochs in all tables "
                  "(a weight of epochs x samples)"),
              line};
    all.push_back(std::move(source));
  }
  sources = std::move(all);
  return {};
}

std::string list_to_toml(const std::vector<std::string>& list) {
  if (list.size() == 1) return str("[", toml_quoted(list.front()), "]");
  std::string text;
  for (const auto& element : list)
    text += str("\n  ", toml_quoted(element), ",");
  return str("[", text, text.empty() ? "]" : "\n]");
}

std::string sources_to_toml(const std::vector<DataSource>& sources) {
  std::string text;
  for (const auto& source : sources)
    text += str("\n  {path = ", list_to_toml(source.paths), ", ",
                source.weight > 0 ? "weight = " : "epochs = ",
                toml_number(source.weight > 0 ? source.weight : source.epochs), "},");
  return str("[", text, text.empty() ? "]" : "\n]");
}

}  // namespace lockstep

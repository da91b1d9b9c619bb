#include "core/units.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <span>

namespace lockstep {
namespace {

// "12.3k": the value in the largest unit in which it is at least 1.
std::string scaled(double value, double step, std::span<const char* const> units) {
  std::size_t unit = 0;
  while (value >= 0.9995 * step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  return (unit == 0 ? formatted("%.0f", value) : trimmed(three_digits(value))) + units[unit];
}

}  // namespace

std::string formatted(const char* format, ...) {
  std::array<char, 96> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  return text.data();
}

std::string trimmed(const std::string& text) {
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

std::string three_digits(double value) {
  if (!std::isfinite(value)) return formatted("%4.4s", std::isnan(value) ? "nan" : "inf");
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return formatted("%4.*f", decimals, value);
}

std::string with_commas(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string human_count(double value) {
  static constexpr std::array kUnits{"", "k", "M", "G", "T"};
  return scaled(value, 1000, kUnits);
}

std::string human_bytes(double bytes) {
  static constexpr std::array kUnits{" B", " kB", " MB", " GB", " TB"};
  return scaled(bytes, 1000, kUnits);
}

std::string human_memory(double bytes) {
  static constexpr std::array kUnits{" B", " KiB", " MiB", " GiB", " TiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string human_seconds(double seconds) {
  if (seconds == 0) return "0 s";
  if (std::abs(seconds) < 0.9995e-3) return trimmed(three_digits(1e6 * seconds)) + " us";
  if (seconds < 0.9995) return trimmed(three_digits(1000 * seconds)) + " ms";
  return trimmed(three_digits(seconds)) + " s";
}

std::string human_eta(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) return "?";
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s < 60) return formatted("%llds", s);
  const auto minutes = (s + 30) / 60;
  if (minutes < 60) return formatted("%lldm", minutes);
  if (minutes < 1440) return formatted("%lldh%02lldm", minutes / 60, minutes % 60);
  const auto hours = (minutes + 30) / 60;
  return formatted("%lldd%02lldh", hours / 24, hours % 24);
}

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] + 2 - row[i].size(), ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace lockstep

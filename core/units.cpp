#include "core/units.h"

#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <span>

namespace lockstep {
namespace {

__attribute__((format(printf, 1, 2))) std::string print(const char* format, ...) {
  std::array<char, 64> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  return text.data();
}

// Three digits without the blank that keeps columns.
std::string short_number(double value) {
  const auto text = three_digits(value);
  return text.substr(text.find_first_not_of(' '));
}

// 12.3k: the value in the largest unit that leaves a digit before the point.
std::string scaled(double value, double step, std::span<const char* const> units) {
  std::size_t unit = 0;
  while (value >= 0.9995 * step && unit + 1 < units.size()) {
    value /= step;
    ++unit;
  }
  return (unit == 0 ? print("%.0f", value) : short_number(value)) + units[unit];
}

}  // namespace

std::string three_digits(double value) {
  if (!std::isfinite(value)) return print("%4.4s", std::isnan(value) ? "nan" : "inf");
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return print("%4.*f", decimals, value);
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
  if (seconds < 0.9995) return short_number(1000 * seconds) + " ms";
  return short_number(seconds) + " s";
}

std::string human_eta(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e10) return "?";
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s < 60) return print("%llds", s);
  const auto minutes = (s + 30) / 60;
  if (minutes < 60) return print("%lldm", minutes);
  if (minutes < 1440) return print("%lldh%02lldm", minutes / 60, minutes % 60);
  const auto hours = (minutes + 30) / 60;
  return print("%lldd%02lldh", hours / 24, hours % 24);
}

}  // namespace lockstep

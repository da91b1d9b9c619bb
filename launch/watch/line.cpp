#include "launch/watch/line.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/units.h"
#include "core/utf8.h"
#include "data/tokenizer/unicode.h"

namespace lockstep {
namespace {

// Number of bytes of the characters that fit.
std::size_t fitting(std::string_view text, int& columns) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto rest = text.substr(at);
    const int width = terminal_width(rest);
    if (width > columns) break;
    columns -= width;
    at += std::max(utf8_at(rest).bytes, std::size_t{1});
  }
  return at;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string plain = replaced_utf8(text);
  for (char& c : plain)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  for (std::size_t at = 0; (at = plain.find('\xc2', at)) != plain.npos; ++at)  // U+0080 to U+009F
    if (at + 1 < plain.size() && static_cast<unsigned char>(plain[at + 1]) < 0xa0)
      plain.replace(at, 2, "?");
  return plain;
}

std::string ascii(std::string text) {
  std::erase_if(text, is_continuation);
  std::ranges::replace_if(
      text, [](char c) { return (c & 0x80) != 0; }, '?');
  return text;
}

int width_of(std::string_view text) {
  constexpr int kMost = std::numeric_limits<int>::max();
  int left = kMost;
  fitting(text, left);
  return kMost - left;
}

std::string cut(std::string_view text, int columns) {
  return std::string(text.substr(0, fitting(text, columns)));
}

std::string padded(std::string text, int columns) {
  text.append(static_cast<std::size_t>(std::max(columns - width_of(text), 0)), ' ');
  return text;
}

std::string right(const std::string& text, int columns) {
  return std::string(static_cast<std::size_t>(std::max(columns - width_of(text), 0)), ' ') + text;
}

std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return "n/a";
  return std::abs(loss) < 1e4 ? formatted("%.4f", loss) : formatted("%.3e", loss);
}

Line& Line::add(const std::string& text, const char* style) {
  const auto shown = shown_.utf8 ? text : ascii(text);
  const int width = width_of(shown);
  if (used_ == 0) {
    put(cut(shown, columns_), style);
  } else if (used_ + width <= columns_) {
    put(shown, style);
  }
  return *this;
}

Line& Line::gap(int columns) {
  const int width = std::min(columns, columns_ - used_);
  if (width > 0) put(std::string(static_cast<std::size_t>(width), ' '), "");
  return *this;
}

void Line::put(const std::string& text, const char* style) {
  used_ += width_of(text);
  if (shown_.colour && style_ != style) {
    text_ += style_.empty() ? "" : "\x1b[0m";
    text_ += *style == '\0' ? "" : str("\x1b[", style, "m");
    style_ = style;
  }
  text_ += text;
}

}  // namespace lockstep

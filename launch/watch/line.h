// Text in a terminal: its width in columns, and lines that are cut to a width.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Parameters of select graphic rendition (ECMA-48).
inline constexpr const char* kCurve = "36";
inline constexpr const char* kValidation = "33";
inline constexpr const char* kAlarm = "31";
inline constexpr const char* kFaint = "2";
inline constexpr const char* kStrong = "1";

struct Style {
  bool colour = false;  // use escape sequences for colours
  bool utf8 = true;     // the terminal shows UTF-8; otherwise ASCII only
};

// Replaces control characters, because names come from files.
std::string printable(std::string_view text);
std::string ascii(std::string text);                  // '?' for non-ASCII characters of UTF-8
int width_of(std::string_view text);                  // columns
std::string cut(std::string_view text, int columns);  // the characters that fit
std::string padded(std::string text, int columns);
std::string right(const std::string& text, int columns);
std::string loss_text(double loss);

// Line joins pieces of text, and omits pieces that do not fit.
class Line {
 public:
  Line(int columns, Style style) : columns_(columns), shown_(style) {}

  // Adds a piece. The first piece is cut to fit; later ones are omitted if they do not fit.
  Line& add(const std::string& text, const char* style = "");
  Line& gap(int columns);
  int left() const { return columns_ - used_; }
  // The text, which ends in the style of its last piece; the terminal resets it after each line.
  const std::string& text() const { return text_; }

 private:
  void put(const std::string& text, const char* style);

  int columns_, used_ = 0;
  Style shown_;
  std::string text_, style_;
};

}  // namespace lockstep

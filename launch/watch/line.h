// Text of a terminal: what it takes in columns, and lines that are cut to as many columns.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Of select graphic rendition (ECMA-48).
inline constexpr const char* kCurve = "36";
inline constexpr const char* kValidation = "33";
inline constexpr const char* kAlarm = "31";
inline constexpr const char* kFaint = "2";
inline constexpr const char* kStrong = "1";

struct Style {
  bool colour = false;  // escape sequences of it
  bool utf8 = true;     // what the terminal shows; else ASCII alone
};

// Without what a terminal obeys: names come from files.
std::string printable(std::string_view text);
std::string ascii(std::string text);                  // of UTF-8: '?' for all other characters
int width_of(std::string_view text);                  // columns
std::string cut(std::string_view text, int columns);  // the characters of so many columns
std::string padded(std::string text, int columns);
std::string right(const std::string& text, int columns);
std::string loss_text(double loss);

// Pieces of a line, of which those that find no place any more are left out.
class Line {
 public:
  Line(int columns, Style style) : columns_(columns), shown_(style) {}

  // A piece that is cut where it is the first, and left out where it does not fit.
  Line& add(const std::string& text, const char* style = "");
  Line& gap(int columns);
  int left() const { return columns_ - used_; }
  // Ends in the style of its last piece: a terminal is told to forget it behind each line.
  const std::string& text() const { return text_; }

 private:
  void put(const std::string& text, const char* style);

  int columns_, used_ = 0;
  Style shown_;
  std::string text_, style_;
};

}  // namespace lockstep

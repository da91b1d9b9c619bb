// UTF-8: what is valid, and U+FFFD in place of what is not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of UTF-8
inline constexpr std::string_view kReplacement = "\xef\xbf\xbd";    // U+FFFD

// The bytes of the character at the front of `text`; 0 where there is no valid one: overlong,
// a surrogate, beyond U+10FFFF, cut. U+FFFD stands for as many of its bytes then as `skip` says:
// the longest begin of a valid character, or one, as Python's errors="replace" does.
// Source: the Unicode Standard, version 15, section 3.9, table 3-7, and "U+FFFD Substitution".
struct Utf8 {
  std::size_t bytes = 0, skip = 0;
};
inline Utf8 utf8_at(std::string_view text) {
  const auto at = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = at(0);
  if (first < 0x80) return {1, 1};
  if (first < 0xc2 || first > 0xf4) return {0, 1};
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte is bounded more where it would be overlong, a surrogate, or too large.
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < least || at(1) > most) return {0, 1};
  for (std::size_t i = 2; i < bytes; ++i)
    if ((at(i) & 0xc0) != 0x80) return {0, i};
  return {bytes, bytes};
}

void append_utf8(std::string& text, unsigned code);  // appends one character

// The offset of the first byte that is not of a valid character; text.size() where all is valid.
std::size_t valid_utf8(std::string_view text);

// With U+FFFD for what is not valid.
std::string replaced_utf8(std::string_view text);

inline bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// The last character of valid UTF-8, or the last byte of what is not.
std::string_view last_character(std::string_view text);

}  // namespace lockstep

// UTF-8 and the normal forms of Unicode (by utf8proc).
#pragma once

#include <cstddef>
#include <cstdint>
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
Utf8 utf8_at(std::string_view text);

// The offset of the first byte that is not of a valid character; text.size() where all is valid.
std::size_t valid_utf8(std::string_view text);

// Whether valid UTF-8 has a character that came after Unicode 14 (data/unicode_classes.h).
bool has_newer_character(std::string_view text);

// With U+FFFD for what is not valid.
std::string replaced_utf8(std::string_view text);

inline bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// Columns that a terminal gives the character at the front of a text: 0, 1 or 2; 1 of what is not
// valid. Source: Unicode Standard Annex 11.
int terminal_width(std::string_view text);

// The last character of valid UTF-8, or the last byte of what is not.
std::string_view last_character(std::string_view text);

// Of the character at the front of a text, by Unicode 16; what is not valid is none of them.
// White_Space; \p{L}; and \w of regular expressions: alphabetic characters, marks, decimal numbers,
// connecting punctuation, joiners. Source: Unicode Technical Standard 18, annex C.
bool is_space(std::string_view text);
bool is_letter(std::string_view text);
bool is_word_character(std::string_view text);

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };
// Of valid UTF-8. Source: Unicode Standard Annex 15.
std::string normalized(std::string_view text, NormalForm form);

}  // namespace lockstep

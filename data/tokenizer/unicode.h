// Classes of characters and the normal forms of Unicode (by utf8proc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Whether valid UTF-8 has a character that is newer than Unicode 14
// (data/tokenizer/unicode_classes.h).
bool has_newer_character(std::string_view text);

// Columns of a terminal for the character at the start of a text: 0, 1 or 2; 1 for invalid text.
// Source: Unicode Standard Annex 11.
int terminal_width(std::string_view text);

// Classes of the character at the start of a text, by Unicode 16; false for invalid text. They are
// White_Space; \p{L}; and \w of regular expressions: alphabetic characters, marks, decimal numbers,
// connecting punctuation, joiners. Source: Unicode Technical Standard 18, annex C.
bool is_space(std::string_view text);
bool is_letter(std::string_view text);
bool is_word_character(std::string_view text);

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };
// Normalizes valid UTF-8. Source: Unicode Standard Annex 15.
std::string normalized(std::string_view text, NormalForm form);

}  // namespace lockstep

// Classes of characters and the normal forms of Unicode (by utf8proc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Whether valid UTF-8 has a character that came after Unicode 14
// (data/tokenizer/unicode_classes.h).
bool has_newer_character(std::string_view text);

// Columns that a terminal gives the character at the front of a text: 0, 1 or 2; 1 of what is not
// valid. Source: Unicode Standard Annex 11.
int terminal_width(std::string_view text);

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

// Differences of Unicode versions between the libraries and the package `tokenizers` 0.23. PCRE2
// 10.42 has the classes of Unicode 14, utf8proc 2.8 those of 15, the package those of 16. utf8proc
// has the normal forms of Unicode 15, the package those of 9.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

struct CodeRange {
  std::uint32_t first = 0, last = 0;
};

struct NewerCharacters {
  std::uint32_t first = 0, last = 0;
  std::string_view category;             // general category, two letters
  std::string_view script, script_code;  // lower case, without underscores: "han", "hani"
};

// By code, without overlap. Includes U+1171E, which is Mn in Unicode 14.
std::span<const NewerCharacters> newer_characters();

// Cn of Unicode 16, by code.
std::span<const CodeRange> unassigned_characters();

// Characters newer than Unicode 9 that have a normal form, compose, or are ordered among marks, by
// code. The package leaves them unchanged.
std::span<const CodeRange> characters_without_forms();

}  // namespace lockstep

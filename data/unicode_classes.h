// The characters that Unicode 16 has and Unicode 14 lacks. PCRE2 10.42 has the classes of Unicode
// 14, utf8proc 2.8 those of 15, the package `tokenizers` 0.23 those of 16.
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

// By code, without overlap. U+1171E, which Unicode 14 has as Mn, is one of them.
std::span<const NewerCharacters> newer_characters();

// Cn of Unicode 16, by code.
std::span<const CodeRange> unassigned_characters();

}  // namespace lockstep

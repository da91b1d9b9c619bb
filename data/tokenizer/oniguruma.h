// Translates regular expressions of Oniguruma, with which `tokenizers` splits text, to PCRE2.
#pragma once

#include <string>

namespace lockstep {

// Keeps syntax that both read alike, and rewrites \s \S \w \W \h \H \d \D, scripts (\p{Han}),
// [a[bc]], {n,m}+, ^ and $ (of lines). \A is the start of a text. Throws DataError naming the place
// for anything else:
// - in classes: &&, [^, \W, \P of a script, and POSIX names
// - back references, \b, atomic groups, options other than i
// - within (?i:...) characters other than ASCII
// - repeated groups that may match nothing
// Source: Oniguruma 6.9, doc/RE.
//
// Classes have the characters of Unicode 14, as in PCRE2 10.42. With `newer` they have those of
// Unicode 16, as in `tokenizers`, and matching is slower; use it for texts with has_newer_character
// (data/tokenizer/unicode.h). The only difference: U+1171E remains in \p{Mn}, beside \p{Mc}.
std::string pcre2_of(const std::string& pattern, bool newer);

}  // namespace lockstep

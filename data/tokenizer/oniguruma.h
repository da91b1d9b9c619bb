// Regular expressions as Oniguruma reads them, by which `tokenizers` cuts text, in PCRE2's terms.
#pragma once

#include <string>

namespace lockstep {

// What both read alike stays; what they read differently is written otherwise: \s \S \w \W \h \H
// \d \D, scripts (\p{Han}), [a[bc]], {n,m}+, ^ and $ (of lines). \A is the begin of a text. Throws
// DataError, naming the place, at anything else: &&, [^, \W, a script's \P and POSIX names in
// classes, back references, \b, atomic groups, options but i, within (?i:...) what is not ASCII,
// and repeated groups that may match nothing. Source: Oniguruma 6.9, doc/RE.
//
// Classes have the characters of Unicode 14, as PCRE2 10.42 has them. If `newer` is set they have
// those of Unicode 16, as `tokenizers` has them, and matching is slower: for texts with
// has_newer_character (data/tokenizer/unicode.h). U+1171E alone remains in \p{Mn}, beside \p{Mc}.
std::string pcre2_of(const std::string& pattern, bool newer);

}  // namespace lockstep

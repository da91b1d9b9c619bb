// Regular expressions as Oniguruma reads them, by which `tokenizers` cuts text, in PCRE2's terms.
#pragma once

#include <string>

namespace lockstep {

// What both read alike stays; what they read differently is written otherwise: \s \S \w \W \h \H
// \d \D, scripts (\p{Han}), [a[bc]], {n,m}+, ^ and $ (of lines). Throws DataError, naming the
// place, at anything else: &&, [^ and POSIX names in classes, back references, \b, atomic groups,
// options but i, within (?i:...) what is not ASCII, and repeated groups that may match nothing.
// Source: Oniguruma 6.9, doc/RE.
std::string pcre2_of(const std::string& pattern);

}  // namespace lockstep

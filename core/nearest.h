// nearest() finds the likely intended word, for messages about unknown keys, verbs and flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Number of edits (insert, delete, replace, swap of neighbours) that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// The candidate with the fewest edits, the first of equals. Empty if none is within about a third
// of the word's length. A candidate "table.key" also matches a word near its last part.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace lockstep

// What a person probably meant, for messages about unknown keys, verbs and flags.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Edits (insert, delete, replace, swap of neighbours) that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// The candidate with the fewest edits, the first of equals; empty when none is within about a third
// of the word's length. A candidate "table.key" is also near to a word that names its last part.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace lockstep

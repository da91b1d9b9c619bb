// Units formats numbers for people, by default with three significant digits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Formats as printf does, at most 95 characters.
__attribute__((format(printf, 1, 2))) std::string formatted(const char* format, ...);
std::string trimmed(const std::string& text);  // without leading blanks

std::string three_digits(double value);     // in four characters: "0.41", "4.12", "41.2", " 412"
std::string with_commas(std::int64_t n);    // n >= 0: 1234567 -> "1,234,567"
std::string human_count(double value);      // "812", "12.3k", "2.54M"
std::string human_seconds(double seconds);  // "85.0 us", "412 ms", "4.12 s"
std::string human_eta(double seconds);      // "42s", "58m", "1h02m", "3d04h"; "?" if unknown
std::string human_bytes(double bytes);      // for files and their rates: "812 B", "40.1 MB"
std::string human_memory(double bytes);     // for memory: "812 B", "40.1 MiB", "1.25 GiB"

// A line for each row. Columns are as wide as their widest cell, with two spaces between them.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace lockstep

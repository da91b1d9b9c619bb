// InputDefects counts defects in text that readers accept. One odd line among millions therefore
// does not stop packing or an evaluation, and a warning at the end reports it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/function_ref.h"

namespace lockstep {

// Handling of a byte that the tokenizer has no token for:
// - refuse: an error that names it.
// - drop: no token, as in the package `tokenizers`.
// - replace: U+FFFD in place of its character.
enum class MissingBytes : std::uint8_t { refuse, drop, replace };
const char* name(MissingBytes missing);
MissingBytes missing_bytes(const std::string& name);  // throws UsageError for other names

// Number of places, and the first one.
struct Tally {
  std::int64_t count = 0;
  std::string first;

  void note(const std::string& where, std::int64_t places = 1);
  void add(const Tally& later);
};

struct InputDefects {
  Tally text;     // places that are not valid Unicode; each was replaced by U+FFFD
  Tally numbers;  // NaN, Infinity and -Infinity, which JSON does not allow, in unused members
  Tally bytes;    // bytes without a token that were dropped, or characters that were replaced
  Tally returns;  // text files with lines that end with \r alone
  Tally zeros;    // files that end with zero bytes, which became tokens

  void add(const InputDefects& later);
};

// Logs a warning for each kind that was found. `missing` is the handling of bytes without a token.
void warn_of(const InputDefects& odd, MissingBytes missing);

// Counts the places of `text` that are not valid UTF-8. `where` describes the place of a byte.
void note_invalid(std::string_view text, Tally& tally,
                  FunctionRef<std::string(std::size_t byte)> where);

// Converts lines of JSON as programs write them into valid lines of JSON (RFC 8259). Lone
// surrogates and bytes that are not UTF-8 become U+FFFD. NaN, Infinity and -Infinity become null,
// which no reader accepts as a value. `what` names the file. Throws DataError if a line ends with
// \r alone, or if the text ends with zero bytes.
std::string mended_json_lines(std::string_view text, const std::string& what, InputDefects& odd);

// Returns a JSON text with NaN, Infinity and -Infinity in quotes. Readers reject the strings as
// numbers, also where null may be a value. Changes nothing else.
std::string with_quoted_not_numbers(std::string_view text);

// Returns the length of NaN, Infinity or -Infinity at the start of `text`; 0 if it starts
// otherwise.
std::size_t not_a_number_at(std::string_view text);

inline constexpr const char* kReturnsAlone =
    R"(a line ends with \r alone; expected \n. Convert the file: tr '\r' '\n' < FILE)";

std::int64_t count_zeros_at_end(std::string_view text);
// Describes the number of zeros at the end of a text of `bytes` bytes and where they begin.
std::string zeros_at_end(std::int64_t bytes, std::int64_t zeros);

// Throws DataError if `zeros` is positive. File systems leave zeros at the end of a file if writing
// it was interrupted.
void refuse_zeros_at_end(const std::string& file, std::int64_t bytes, std::int64_t zeros);

}  // namespace lockstep

// OddInput counts what readers of text accept although it is not as it should be, so that one odd
// line among millions ends no packing and no evaluation, and the user learns of it at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/function_ref.h"

namespace lockstep {

// What becomes of a byte that the tokenizer has no token for: an error that names it; no token, as
// in the package `tokenizers`; or U+FFFD in place of its character.
enum class MissingBytes : std::uint8_t { refuse, drop, replace };
const char* name(MissingBytes missing);
MissingBytes missing_bytes(const std::string& name);  // throws UsageError where it is none

// A number of places, and the first of them.
struct Tally {
  std::int64_t count = 0;
  std::string first;

  void note(const std::string& where, std::int64_t places = 1);
  void add(const Tally& later);
};

struct OddInput {
  Tally text;     // places that are not valid Unicode, each of which became U+FFFD
  Tally numbers;  // NaN, Infinity and -Infinity, which are not JSON, in members that are not read
  Tally bytes;    // bytes without a token that were dropped, or characters that were replaced
  Tally returns;  // text files with lines that end with \r alone
  Tally zeros;    // files that end with zero bytes, which became tokens

  void add(const OddInput& later);
};

// Logs a warning for each kind that was found. `missing`: what became of bytes without a token.
void warn_of(const OddInput& odd, MissingBytes missing);

// Counts the places of `text` that are not valid UTF-8. `where` names one by its first byte.
void note_invalid(std::string_view text, Tally& tally,
                  FunctionRef<std::string(std::size_t byte)> where);

// Lines of JSON as json programs write them, as lines of JSON (RFC 8259): lone surrogates and bytes
// that are not UTF-8 become U+FFFD, and NaN, Infinity and -Infinity null, which no reader takes for
// a value. `what` names the file. Throws DataError where a line ends with \r alone, or zero bytes
// stand at the end.
std::string mended_json_lines(std::string_view text, const std::string& what, OddInput& odd);

// A JSON text in which NaN, Infinity and -Infinity are in quotes: strings, which no reader takes
// for a number, where null may be a value. Nothing else is mended.
std::string with_quoted_not_numbers(std::string_view text);

// NaN, Infinity or -Infinity at the front of `text`: its bytes; 0: it is neither.
std::size_t not_a_number_at(std::string_view text);

inline constexpr const char* kReturnsAlone =
    R"(a line ends with \r alone; expected \n. Convert the file: tr '\r' '\n' < FILE)";

std::int64_t count_zeros_at_end(std::string_view text);
// In words: how many of a text of `bytes` bytes, and where they begin.
std::string zeros_at_end(std::int64_t bytes, std::int64_t zeros);

// Throws DataError where `zeros` bytes, more than none, end a text of `bytes` bytes: a file system
// leaves them where writing was interrupted.
void refuse_zeros_at_end(const std::string& file, std::int64_t bytes, std::int64_t zeros);

}  // namespace lockstep

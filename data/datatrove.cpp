#include "data/datatrove.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <span>
#include <string_view>

namespace lockstep {
namespace {

// Parses a number that is all of `text`; returns -1 for other text.
std::int64_t number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() ? value : -1;
}

// Formats with three digits: 123456 -> "123 kT", 1500 -> "1.50 kT".
std::string for_people(std::int64_t tokens) {
  constexpr std::array<const char*, 7> kPrefixes = {"", "k", "M", "G", "T", "P", "E"};
  auto value = static_cast<double>(tokens);
  std::size_t prefix = 0;
  while (value >= 999.5) {
    value /= 1000;
    ++prefix;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %sT",
                value < 9.995   ? 2
                : value < 99.95 ? 1
                                : 0,
                value, kPrefixes[prefix]);
  return text;
}

}  // namespace

TokenFormat datatrove_format(std::int64_t token_bytes, const ReadFile& index) {
  const auto bytes = index.size_bytes();
  if (bytes == 0 || bytes % 8 != 0)
    index.fail(bytes,
               str("expected document ends of 8 bytes each, but the file has ", bytes, " bytes"));
  std::uint64_t last = 0;
  index.read(std::as_writable_bytes(std::span(&last, 1)), bytes - 8);
  for (const int size : {2, 4})
    if (token_bytes % size == 0 && static_cast<std::uint64_t>(token_bytes / size) == last)
      return {"datatrove", 0, size, 0, Boundary::listed, -1};
  index.fail(bytes - 8, str("the last document ends at token ", last, ", but the .ds has ",
                            token_bytes, " bytes; expected 2 or 4 bytes per token"));
}

void check_datatrove_metadata(const ReadFile& metadata, const TokenFormat& format,
                              std::int64_t tokens) {
  constexpr std::int64_t kMostBytes = 1 << 16;
  const auto text = read_text(metadata, kMostBytes);
  const auto first_end = text.find('\n');
  if (first_end == std::string::npos)
    metadata.fail(0, "expected a line with the tokenizer and a line with the number of tokens");
  const auto first = std::string_view(text).substr(0, first_end);
  // Older files have only the name of the tokenizer.
  if (const auto bar = first.rfind('|'); bar != std::string_view::npos)
    if (const auto size = number_of(first.substr(bar + 1)); size != format.token_bytes)
      metadata.fail(static_cast<std::int64_t>(bar) + 1,
                    str("expected ", format.token_bytes,
                        " bytes per token, as in the index, found ", first.substr(bar + 1)));
  const auto rest = std::string_view(text).substr(first_end + 1);
  const auto second = rest.substr(0, rest.find('\n'));
  if (number_of(second) != tokens)
    metadata.fail(static_cast<std::int64_t>(first_end) + 1,
                  str("expected ", tokens, " tokens, the number in the shard, found ", second));
}

std::string datatrove_metadata(const std::string& tokenizer, int token_bytes, std::int64_t tokens) {
  return str(tokenizer, '|', token_bytes, '\n', tokens, '\n', for_people(tokens));
}

}  // namespace lockstep

#include "core/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep {
namespace {

// How many bytes at the front are ASCII, by eight.
std::size_t ascii_bytes(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + i, 8);
    if ((eight & 0x8080808080808080) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80)
    ++i;
  return i;
}

}  // namespace

Utf8 utf8_at(std::string_view text) {
  const auto at = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned first = at(0);
  if (first < 0x80) return {1, 1};
  if (first < 0xc2 || first > 0xf4) return {0, 1};
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // The second byte is bounded more where it would be overlong, a surrogate, or too large.
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (at(1) < least || at(1) > most) return {0, 1};
  for (std::size_t i = 2; i < bytes; ++i)
    if ((at(i) & 0xc0) != 0x80) return {0, i};
  return {bytes, bytes};
}

std::size_t valid_utf8(std::string_view text) {
  for (std::size_t i = 0;;) {
    i += ascii_bytes(text.substr(i));
    if (i == text.size()) return i;
    const auto bytes = utf8_at(text.substr(i)).bytes;
    if (bytes == 0) return i;
    i += bytes;
  }
}

std::string replaced_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto valid = valid_utf8(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacement;
    text.remove_prefix(utf8_at(text).skip);
  }
  return out;
}

std::string_view last_character(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < std::min<std::size_t>(text.size(), 4) &&
         is_continuation(text[text.size() - bytes]))
    ++bytes;
  const auto character = text.substr(text.size() - bytes);
  return utf8_at(character).bytes == bytes ? character : text.substr(text.size() - 1);
}

}  // namespace lockstep

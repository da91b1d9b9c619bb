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

void append_utf8(std::string& text, unsigned code) {
  if (code < 0x80) return text.push_back(static_cast<char>(code));
  int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // bytes after the first
  text += static_cast<char>(0xff00U >> (more + 1) | code >> 6 * more);
  while (more-- > 0)
    text += static_cast<char>(0x80 | (code >> 6 * more & 0x3f));
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

#include "data/pack/shown_text.h"

#include <cstdio>
#include <utility>

#include "core/utf8.h"

namespace lockstep {
namespace {

void append_hex(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x",
                  static_cast<unsigned>(static_cast<unsigned char>(byte)));
    out += hex;
  }
}

// U+0080 to U+009F are control characters too. U+200E, U+200F, U+202A to U+202E and U+2066 to
// U+2069 change the writing direction. U+2028 and U+2029 end lines.
bool steers(std::string_view character) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1)
    return (at(0) < 0x20 && character != "\n" && character != "\t") || at(0) == 0x7f;
  if (character.size() == 2) return at(0) == 0xc2 && at(1) < 0xa0;
  if (character.size() != 3 || at(0) != 0xe2) return false;
  return (at(1) == 0x80 && (at(2) == 0x8e || at(2) == 0x8f || (0xa8 <= at(2) && at(2) <= 0xae))) ||
         (at(1) == 0x81 && 0xa6 <= at(2) && at(2) <= 0xa9);
}

}  // namespace

std::string shown(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [bytes, skip] = utf8_at(text);
    const auto character = text.substr(0, bytes == 0 ? skip : bytes);
    if (bytes == 0 || steers(character))
      append_hex(out, character);
    else
      out += character;
    text.remove_prefix(character.size());
  }
  return out;
}

void ShownText::mark(std::string_view text) {
  text_ += shown(std::exchange(waiting_, {}));
  text_ += text;
}

std::string ShownText::take() {
  mark("");
  return std::exchange(text_, {});
}

}  // namespace lockstep

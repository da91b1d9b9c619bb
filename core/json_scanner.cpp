#include "core/json_scanner.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/utf8.h"

namespace lockstep {
namespace {

constexpr std::uint64_t repeated(unsigned char byte) {
  return std::uint64_t{0x0101010101010101} * byte;
}

// How many plain characters `bytes` bytes, at most eight, begin with: neither a quote, a backslash
// nor a control character, and ASCII.
std::size_t plain_of(const char* at, std::size_t bytes) {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t eight = 0;  // zeros after the bytes are no plain characters
  std::memcpy(&eight, at, bytes);
  // Exact up to the first high bit: a borrow goes upwards.
  const auto special = ((eight ^ repeated('"')) - repeated(1)) |
                       ((eight ^ repeated('\\')) - repeated(1)) | (eight - repeated(0x20)) | eight;
  return static_cast<std::size_t>(std::countr_zero(special & repeated(0x80))) / 8;
}

std::size_t plain_bytes(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8)
    if (const auto plain = plain_of(text.data() + i, 8); plain < 8) return i + plain;
  return i + plain_of(text.data() + i, text.size() - i);
}

}  // namespace

void JsonScanner::fail(std::string_view what) const {
  throw Problem{byte(), std::string(what)};
}

void JsonScanner::digits(const char* none) {
  if (!at_digit()) fail(none);
  while (at_digit())
    ++at_;
}

std::string_view JsonScanner::number() {
  const auto first = byte();
  take('-');
  if (!take('0')) digits("expected a digit");
  if (take('.')) digits("expected a digit after the point");
  if (take('e') || take('E')) {
    if (!take('+')) take('-');
    digits("expected a digit of the exponent");
  }
  return since(first);
}

std::size_t JsonScanner::string(std::string* value) {
  std::size_t replaced = 0;
  ++at_;
  for (;;) {
    const auto plain = plain_bytes(rest());
    if (value != nullptr) value->append(at_, plain);
    at_ += plain;
    if (at_ == end_) fail("the line ends within a string");
    if (take('"')) return replaced;
    if (*at_ == '\\') {
      replaced += escape(value);
      continue;
    }
    if (static_cast<unsigned char>(*at_) < 0x20) fail("a control character in a string; escape it");
    const char* first = at_;
    do {
      const auto [bytes, skip] = utf8_at(rest());
      if (bytes == 0) {
        if (value != nullptr) value->append(first, at_).append(kReplacement);
        ++replaced;
        first = at_ + skip;
      }
      at_ += bytes > 0 ? bytes : skip;
    } while (at_ < end_ && static_cast<unsigned char>(*at_) >= 0x80);
    if (value != nullptr) value->append(first, at_);
  }
}

unsigned JsonScanner::hex() {
  unsigned code = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char lower = static_cast<char>(next() | 0x20);
    if (at_digit())
      code = 16 * code + static_cast<unsigned>(next() - '0');
    else if ('a' <= lower && lower <= 'f')
      code = 16 * code + static_cast<unsigned>(lower - 'a') + 10;
    else
      fail("expected four hexadecimal digits after \\u");
  }
  return code;
}

bool JsonScanner::escape(std::string* value) {
  static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  if (++at_ == end_) fail("the line ends within a string");
  if (const auto letter = kLetters.find(*at_); letter != std::string_view::npos) {
    ++at_;
    if (value != nullptr) *value += kMeant[letter];
    return false;
  }
  if (!take('u')) fail("an escape that JSON does not define");
  auto code = hex();
  if (const char* second = at_; 0xd800 <= code && code < 0xdc00 && take("\\u")) {
    const auto low = hex();
    if (0xdc00 <= low && low < 0xe000)
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    else
      at_ = second;  // a character of its own
  }
  const bool is_half = 0xd800 <= code && code < 0xe000;
  if (value != nullptr) append_utf8(*value, is_half ? 0xfffd : code);
  return is_half;
}

}  // namespace lockstep

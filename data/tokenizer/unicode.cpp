#include "data/tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <span>
#include <utf8proc.h>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"
#include "data/tokenizer/unicode_classes.h"

namespace lockstep {
namespace {

// Characters below U+0300 compose with no character before them, and have no other form in NFC.
bool is_nfc_at_sight(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
}

std::int32_t code_at(std::string_view text) {
  utf8proc_int32_t code = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &code);
  return code;
}

// Returns the character at byte `i` of valid UTF-8 and moves `i` after it.
std::int32_t next_code(std::string_view text, std::size_t& i) {
  const auto first = static_cast<unsigned char>(text[i++]);
  if (first < 0x80) return first;
  const std::size_t more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
  std::int32_t code = first & (0x3f >> more);
  for (const auto end = i + more; i < end; ++i)
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3f);
  return code;
}

utf8proc_option_t options_of(NormalForm form) {
  switch (form) {
    case NormalForm::nfc: return UTF8PROC_COMPOSE;
    case NormalForm::nfd: return UTF8PROC_DECOMPOSE;
    case NormalForm::nfkc:
      return static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NormalForm::nfkd:
      return static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  LOCKSTEP_FAIL("a normal form");
}

constexpr std::size_t kBlock = 64;  // characters that differ only in their last byte
using Blocks = std::array<bool, 0x110000 / kBlock>;

// The blocks that the ranges touch. They are few, so most characters need only one lookup.
template <class Ranges>
Blocks blocks_of(const Ranges& ranges) {
  Blocks blocks{};
  for (const auto& range : ranges)
    std::fill(&blocks[range.first / kBlock], &blocks[range.last / kBlock] + 1, true);
  return blocks;
}

// Returns the range with the character, or nullptr.
template <class Range>
const Range* range_at(std::span<const Range> ranges, std::uint32_t code) {
  const auto place = std::partition_point(ranges.begin(), ranges.end(),
                                          [&](const auto& range) { return range.last < code; });
  return place != ranges.end() && place->first <= code ? &*place : nullptr;
}

std::string_view category_of(std::int32_t code) {
  const auto* newer = range_at(newer_characters(), static_cast<std::uint32_t>(code));
  return newer != nullptr ? newer->category : utf8proc_category_string(code);
}

constexpr std::int32_t kFirstMark = 0x300;

// Whether normal forms leave the character unchanged, as `tokenizers` does.
bool has_no_form(std::int32_t signed_code) {
  static const auto kBlocks = blocks_of(characters_without_forms());
  const auto code = static_cast<std::uint32_t>(signed_code);
  return kBlocks[code / kBlock] && range_at(characters_without_forms(), code) != nullptr;
}

// U+11A7 is the code before the first Hangul consonant that closes a syllable (Unicode, section
// 3.12: TBase). utf8proc 2.8 treats it as one that closes a syllable, and drops it.
bool composes_with_none(std::int32_t code) {
  return code == 0x11a7 || has_no_form(code);
}

struct Decomposed {
  std::vector<std::int32_t> codes;
  bool composes_throughout = true;  // false: some characters do not compose
};

Decomposed decomposed(std::string_view text, utf8proc_option_t options) {
  Decomposed out;
  auto& codes = out.codes;
  codes.reserve(text.size() + 1);
  std::array<std::int32_t, 32> parts{};  // the longest is 18
  int boundary = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto code = next_code(text, i);
    const bool composes = code < kFirstMark || !composes_with_none(code);
    out.composes_throughout = out.composes_throughout && composes;
    if (code < 0x80 || !composes) {
      codes.push_back(code);
      continue;
    }
    const auto count =
        utf8proc_decompose_char(code, parts.data(), parts.size(), options, &boundary);
    LOCKSTEP_CHECK(0 <= count && count <= std::ssize(parts),
                   "a normal form: ", utf8proc_errmsg(count));
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  return out;
}

// utf8proc composes in place and writes a zero after the text.
void append_composed(std::string& text, std::vector<std::int32_t> codes,
                     utf8proc_option_t options) {
  const auto count = static_cast<utf8proc_ssize_t>(codes.size());
  codes.push_back(0);
  const auto bytes = utf8proc_reencode(codes.data(), count, options);
  LOCKSTEP_CHECK(bytes >= 0, "a normal form: ", utf8proc_errmsg(bytes));
  text.append(reinterpret_cast<const char*>(codes.data()), static_cast<std::size_t>(bytes));
}

int mark_class(std::int32_t code) {  // 0: no mark
  if (code < kFirstMark) return 0;
  const int mark = utf8proc_get_property(code)->combining_class;
  return mark == 0 || has_no_form(code) ? 0 : mark;
}

// Sorts consecutive marks by their classes, stably. The method of utf8proc is quadratic.
void order_marks(std::vector<std::int32_t>& codes) {
  const auto before = [](std::int32_t a, std::int32_t b) { return mark_class(a) < mark_class(b); };
  for (auto begin = codes.begin(); begin != codes.end();) {
    auto end = begin;
    while (end != codes.end() && mark_class(*end) > 0)
      ++end;
    if (end - begin > 1) std::stable_sort(begin, end, before);
    begin = end == codes.end() ? end : end + 1;
  }
}

// Returns the number of bytes at the start, in blocks of 32, that start no character of three or
// four bytes.
std::size_t bytes_without_long(std::string_view text) {
  std::size_t i = 0;
  for (; i + 32 <= text.size(); i += 32) {
    std::array<std::uint64_t, 4> words{};
    std::memcpy(words.data(), text.data() + i, sizeof words);
    std::uint64_t found = 0;
    for (const auto word : words)
      found |= word & word << 1 & word << 2;
    if ((found & 0x8080808080808080) != 0) break;
  }
  return i;
}

}  // namespace

bool has_newer_character(std::string_view text) {
  static const auto kBlocks = blocks_of(newer_characters());
  const auto* const blocks = kBlocks.data();
  const auto low = [&](std::size_t i) { return static_cast<unsigned char>(text[i]) & 0x3fu; };
  for (std::size_t i = bytes_without_long(text); i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0xe0) {
      ++i;
      if (text[i - 1] == ' ') i += bytes_without_long(text.substr(i));
      continue;
    }
    const std::size_t bytes = first < 0xf0 ? 3 : 4;
    const auto block = bytes == 3 ? (first & 0xfu) << 6 | low(i + 1)
                                  : (first & 7u) << 12 | low(i + 1) << 6 | low(i + 2);
    if (blocks[block] &&
        range_at(newer_characters(), block * kBlock + low(i + bytes - 1)) != nullptr)
      return true;
    i += bytes;
  }
  return false;
}

int terminal_width(std::string_view text) {
  return utf8_at(text).bytes == 0 ? 1 : utf8proc_charwidth(code_at(text));
}

bool is_space(std::string_view text) {
  const auto code = code_at(text);
  return (9 <= code && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (0x2000 <= code && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_letter(std::string_view text) {
  return category_of(code_at(text))[0] == 'L';
}

bool is_word_character(std::string_view text) {
  const auto code = code_at(text);
  const auto category = category_of(code);
  const bool is_joiner = code == 0x200c || code == 0x200d;
  // Other_Alphabetic without marks: letters in circles and squares.
  const bool is_enclosed_letter =
      (0x24b6 <= code && code <= 0x24e9) || (0x1f130 <= code && code <= 0x1f149) ||
      (0x1f150 <= code && code <= 0x1f169) || (0x1f170 <= code && code <= 0x1f189);
  return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" ||
         category == "Pc" || is_joiner || is_enclosed_letter;
}

std::string normalized(std::string_view text, NormalForm form) {
  if (form == NormalForm::nfc && is_nfc_at_sight(text)) return std::string(text);
  const auto options = static_cast<utf8proc_option_t>(options_of(form) | UTF8PROC_STABLE);
  auto [codes, composes_throughout] = decomposed(text, options);
  order_marks(codes);
  std::string text_in_form;
  if (composes_throughout) {
    append_composed(text_in_form, std::move(codes), options);
    return text_in_form;
  }
  for (auto begin = codes.begin();;) {
    const auto end = std::find_if(begin, codes.end(), composes_with_none);
    append_composed(text_in_form, {begin, end}, options);
    if (end == codes.end()) break;
    append_utf8(text_in_form, static_cast<unsigned>(*end));
    begin = end + 1;
  }
  return text_in_form;
}

}  // namespace lockstep

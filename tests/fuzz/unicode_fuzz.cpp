// In any bytes, valid UTF-8 is the same as for another decoder, and each invalid part becomes one
// U+FFFD. Normal forms are valid, do not change again, and match each other.
#include "core/utf8.h"
#include "data/tokenizer/unicode.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz::unicode_fuzz {
// The number of bytes of the character at `at`, from its code point; 0: not valid.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (bytes == 0 || bytes > text.size() - at) return 0;
  std::uint32_t code = first & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[at + i])) return 0;
    code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = 0xd800 <= code && code <= 0xdfff;
  return code < kLeast[bytes] || code > 0x10ffff || is_surrogate ? 0 : bytes;
}

void check_replaced(std::string_view text) {
  const auto replaced = replaced_utf8(text);
  LOCKSTEP_CHECK(valid_utf8(replaced) == replaced.size(), "not valid behind replacing");
  LOCKSTEP_CHECK(replaced_utf8(replaced) == replaced, "replaced twice");
  std::size_t out = 0;  // valid characters stay in order, with U+FFFD between them
  for (std::size_t at = 0; at < text.size();) {
    if (const auto bytes = character_at(text, at); bytes > 0) {
      LOCKSTEP_CHECK(replaced.compare(out, bytes, text.substr(at, bytes)) == 0, "byte ", at);
      out += bytes;
      at += bytes;
    } else {
      const auto skip = utf8_at(text.substr(at)).skip;
      LOCKSTEP_CHECK(1 <= skip && skip <= 3 && skip <= text.size() - at, "skips ", skip);
      for (std::size_t i = 1; i < skip; ++i)
        LOCKSTEP_CHECK(is_continuation(text[at + i]), "skips what may be valid");
      LOCKSTEP_CHECK(replaced.compare(out, 3, "\xef\xbf\xbd") == 0, "byte ", at);
      out += 3;
      at += skip;
    }
  }
  LOCKSTEP_CHECK(out == replaced.size(), "more than the text");
}

void check_forms(const std::string& text) {
  const auto nfc = normalized(text, NormalForm::nfc), nfd = normalized(text, NormalForm::nfd);
  const auto nfkc = normalized(text, NormalForm::nfkc), nfkd = normalized(text, NormalForm::nfkd);
  for (const auto& form : {nfc, nfd, nfkc, nfkd})
    LOCKSTEP_CHECK(valid_utf8(form) == form.size(), "a normal form that is not valid");
  LOCKSTEP_CHECK(normalized(nfc, NormalForm::nfc) == nfc, "NFC of NFC");
  LOCKSTEP_CHECK(normalized(nfd, NormalForm::nfc) == nfc, "NFC of NFD");
  LOCKSTEP_CHECK(normalized(nfc, NormalForm::nfd) == nfd, "NFD of NFC");
  LOCKSTEP_CHECK(normalized(nfd, NormalForm::nfd) == nfd, "NFD of NFD");
  LOCKSTEP_CHECK(normalized(nfkd, NormalForm::nfkc) == nfkc, "NFKC of NFKD");
  LOCKSTEP_CHECK(normalized(nfc, NormalForm::nfkd) == nfkd, "NFKD of NFC");
  LOCKSTEP_CHECK(normalized(nfkc, NormalForm::nfkc) == nfkc, "NFKC of NFKC");
}

void check(std::string_view text) {
  std::size_t valid = 0;
  while (valid < text.size() && character_at(text, valid) > 0)
    valid += character_at(text, valid);
  LOCKSTEP_CHECK(valid_utf8(text) == valid, "valid up to ", valid, ", not ", valid_utf8(text));
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto rest = text.substr(at);
    LOCKSTEP_CHECK(utf8_at(rest).bytes == character_at(text, at), "the character at byte ", at);
    LOCKSTEP_CHECK(!is_letter(rest) || is_word_character(rest), "a letter of no word");
    LOCKSTEP_CHECK(!is_letter(rest) || !is_space(rest), "a letter that is a space");
  }
  if (!text.empty()) LOCKSTEP_CHECK(text.ends_with(last_character(text)), "the last character");
  check_replaced(text);
  check_forms(replaced_utf8(text));
}

Seeds seeds() {
  return {"a\xc3\xa9-e\xcc\x81\xcc\xa7 \xe2\x84\xab \xef\xac\x81\n",
          "\xed\x95\x9c\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab\xed\x95\x98\xe1\x86\xa7 ",
          "\xf0\x9f\x98\x80\xf0\x9d\x85\x9e",
          "\xe0\xa4\x95\xe0\xa4\xbc \xe3\x81\x8b\xe3\x82\x99\xef\xbb\xbf \xff\xc0\x80 \xf4\x8f\xbf",
          "\xe2\x80\x83\xc2\x85\xc2\xa0 \xef\xb7\xba \xf0\xaf\xa8\x9d",
          "\xed\xa0\x80\xed\x9f\xbf \xf4\x90\x80\x80\xe0\x9f\xbf\xf0\x8f\xbf\xbf\xc1\xbf"};
}

const Target target("unicode", seeds, check);

}  // namespace lockstep::fuzz::unicode_fuzz

#include "data/tokenizer/unicode.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"

namespace lockstep::testing::unicode_test {

// A character as UTF-8 writes it (The Unicode Standard, table 3-6).
std::string utf8(std::uint32_t code) {
  const auto byte = [](std::uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xc0 | code >> 6), byte(0x80 | (code & 0x3f))};
  if (code < 0x10000)
    return {byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 0x3f)), byte(0x80 | (code & 0x3f))};
  return {byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 0x3f)),
          byte(0x80 | (code >> 6 & 0x3f)), byte(0x80 | (code & 0x3f))};
}

TEST(Unicode, every_character_is_valid_and_no_surrogate_is) {
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    const auto text = utf8(code);
    const bool surrogate = 0xd800 <= code && code < 0xe000;
    ASSERT_EQ(utf8_at(text).bytes, surrogate ? 0 : text.size()) << std::hex << code;
    ASSERT_EQ(valid_utf8("ab" + text), surrogate ? 2 : 2 + text.size()) << std::hex << code;
  }
  EXPECT_EQ(utf8_at(utf8(0x110000)).bytes, 0u);
  for (const char* overlong_or_cut : {"\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
                                      "\x80", "\xff", "\xe2\x82", "\xf0\x9f\x98", "\xc3"})
    EXPECT_EQ(utf8_at(overlong_or_cut).bytes, 0u) << overlong_or_cut;
}

// The counts are those of unicodedata2 16.0.0 and of the package `tokenizers` 0.23.3, which finds
// a token with single_word beside any character that is in no word.
TEST(Unicode, letters_and_words_are_those_of_unicode_16) {
  std::size_t letters = 0, words = 0, newer = 0;
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    const auto text = utf8(code);
    if (utf8_at(text).bytes == 0) continue;
    letters += is_letter(text) ? 1 : 0;
    words += is_word_character(text) ? 1 : 0;
    // Behind characters of all lengths, so that it is at any byte of eight.
    const bool is_newer = has_newer_character(text);
    ASSERT_EQ(has_newer_character(std::string(code % 9, 'a') + utf8(0xe9) + utf8(0x4e00) + text),
              is_newer);
    newer += is_newer ? 1 : 0;
  }
  EXPECT_EQ(letters, 141028u);
  EXPECT_EQ(words, 144667u);
  EXPECT_EQ(newer, 10302u);
}

// As the package `tokenizers` 0.23.3 leaves them.
TEST(Unicode, characters_after_unicode_9_have_no_other_form) {
  for (const char* text : {"a\u09fe\u0334", "a\u08d3\u0301", "\U00011935\U00011930"}) {
    EXPECT_EQ(normalized(text, NormalForm::nfc), text);
    EXPECT_EQ(normalized(text, NormalForm::nfkd), text);
  }
  EXPECT_EQ(normalized("\u32ff\U0001e030", NormalForm::nfkc), "\u32ff\U0001e030");
  EXPECT_EQ(normalized("a\u0301\u08d3"
                       "e\u0301",
                       NormalForm::nfc),
            "\u00e1\u08d3\u00e9");
}

// The examples of The Unicode Standard, section 3.9, tables 3-8 to 3-11.
TEST(Unicode, each_incomplete_character_is_replaced_once) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(replaced_utf8("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
                          "A"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replaced_utf8("\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
                          "A"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replaced_utf8("\xf4\x91\x92\x93\xff"
                          "A"
                          "\x80\xbf"
                          "B"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(replaced_utf8("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
                          "A"),
            r + r + r + r + "A");
}

TEST(Unicode, valid_text_is_unchanged_and_other_text_becomes_valid) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (auto n = random() % 40; n > 0; --n)
      text.push_back(static_cast<char>(random() % 4 == 0 ? random() % 256 : 'a'));
    const auto replaced = replaced_utf8(text);
    ASSERT_EQ(valid_utf8(replaced), replaced.size());
    ASSERT_EQ(replaced == text, valid_utf8(text) == text.size());
  }
}

TEST(Unicode, normal_forms_are_those_of_the_standard) {
  const std::string composed = "\xc3\x85", decomposed = "A\xcc\x8a",
                    sign = "\xe2\x84\xab";  // A with ring; Angstrom
  for (const auto& text : {composed, decomposed, sign}) {
    EXPECT_EQ(normalized(text, NormalForm::nfc), composed);
    EXPECT_EQ(normalized(text, NormalForm::nfd), decomposed);
    EXPECT_EQ(normalized(text, NormalForm::nfkc), composed);
    EXPECT_EQ(normalized(text, NormalForm::nfkd), decomposed);
  }
  const std::string fi = "\xef\xac\x81";  // a ligature
  EXPECT_EQ(normalized(fi, NormalForm::nfc), fi);
  EXPECT_EQ(normalized(fi, NormalForm::nfkc), "fi");
  const std::string han = "\xea\xb0\x80", jamo = "\xe1\x84\x80\xe1\x85\xa1";
  EXPECT_EQ(normalized(jamo, NormalForm::nfc), han);
  EXPECT_EQ(normalized(han, NormalForm::nfd), jamo);
  const std::string no_consonant = "\xe1\x86\xa7";  // U+11A7 closes no syllable
  const std::string ha = "\xed\x95\x98", parts_of_ha = "\xe1\x84\x92\xe1\x85\xa1";
  for (const auto& rest : {std::string(), std::string("a\xcc\x88"), no_consonant})
    for (const auto form : {NormalForm::nfc, NormalForm::nfkc}) {
      const auto expected = no_consonant + (rest == "a\xcc\x88" ? "\xc3\xa4" : rest);
      EXPECT_EQ(normalized(str(parts_of_ha, no_consonant, rest), form), ha + expected);
      EXPECT_EQ(normalized(str(ha, no_consonant, rest), form), ha + expected);
    }
  // Marks come in the order of their classes: dot below before dot above.
  EXPECT_EQ(normalized("a\xcc\x87\xcc\xa3", NormalForm::nfc), "\xe1\xba\xa1\xcc\x87");
}

// By the classes that the Unicode Character Database gives them; of one class as they stood.
TEST(Unicode, marks_are_sorted_by_class) {
  const std::vector<std::pair<std::string, int>> marks{
      {"\xcc\xb4", 1},   {"\xcc\xa3", 220}, {"\xcc\xb1", 220}, {"\xcc\x81", 230},
      {"\xcc\x87", 230}, {"\xcd\x85", 240}, {"\xd6\xb0", 10},  {"a", 0}};
  std::mt19937 random(4);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text, expected;
    std::vector<std::pair<std::string, int>> run;
    const auto end_run = [&] {
      std::stable_sort(run.begin(), run.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
      for (const auto& mark : run)
        expected += mark.first;
      run.clear();
    };
    for (auto n = 1 + random() % 30; n > 0; --n) {
      const auto& mark = marks[random() % marks.size()];
      text += mark.first;
      if (mark.second == 0) end_run();
      run.push_back(mark);
      if (mark.second == 0) end_run();
    }
    end_run();
    ASSERT_EQ(normalized(text, NormalForm::nfd), expected);
    ASSERT_EQ(normalized(normalized(text, NormalForm::nfc), NormalForm::nfd), expected);
  }
}

// Twice the marks take twice as long, and a little: sorting them by pairs would take four times.
TEST(Unicode, a_megabyte_of_marks_is_not_quadratic) {
  for (const auto form : {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc}) {
    const auto seconds = [&](int pairs, int rounds) {
      std::string marks = "a", sorted = "a", found;
      for (int i = 0; i < pairs; ++i)
        marks += "\xcc\x81\xcc\xa3";  // acute, dot below
      for (int i = 0; i < 2 * pairs; ++i)
        sorted += i < pairs ? "\xcc\xa3" : "\xcc\x81";
      double least = 1e9;
      for (int i = 0; i < rounds; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        found = normalized(marks, form);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        least = std::min(least, took.count());
      }
      EXPECT_EQ(normalized(found, NormalForm::nfd), normalized(sorted, NormalForm::nfd));
      return least;
    };
    const auto small = seconds(1 << 12, 3), large = seconds(1 << 18, 1);  // 16 KiB, 1 MiB
    EXPECT_LT(large, 64 * 20 * small) << small << " s and " << large << " s";
  }
}

TEST(Unicode, spaces_and_word_characters) {
  for (const char* space :
       {" ", "\t", "\r", "\x0b", "\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\x83",
        "\xe2\x80\xa8", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"})
    EXPECT_TRUE(is_space(space)) << space;
  for (const char* other : {"a", "\x1c", "\xe1\xa0\x8e", "\xe2\x80\x8b", "\xef\xbb\xbf"})
    EXPECT_FALSE(is_space(other)) << other;
  for (const char* word :
       {"a", "Z", "_", "9", "\xc3\xa9", "\xcc\x81", "\xe4\xba\xba", "\xe2\x80\x8d", "\xe2\x85\xa7"})
    EXPECT_TRUE(is_word_character(word)) << word;
  for (const char* other : {"-", " ", ".", "\xc2\xbd", "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    EXPECT_FALSE(is_word_character(other)) << other;
}

TEST(Unicode, terminal_width_is_zero_one_or_two) {
  EXPECT_EQ(terminal_width("a"), 1);
  EXPECT_EQ(terminal_width("\xc3\xa9"), 1);
  EXPECT_EQ(terminal_width("\xcc\x81"), 0);          // a mark that combines
  EXPECT_EQ(terminal_width("\xe6\xa8\xa1"), 2);      // of Chinese
  EXPECT_EQ(terminal_width("\xf0\x9f\x9a\x80"), 2);  // a rocket
  EXPECT_EQ(terminal_width("\xe2\xa3\xbf"), 1);      // Braille
  EXPECT_EQ(terminal_width("\xff"), 1);
}

}  // namespace lockstep::testing::unicode_test

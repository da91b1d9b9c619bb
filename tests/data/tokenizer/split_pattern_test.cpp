#include "data/tokenizer/split_pattern.h"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/wording.h"

namespace lockstep::testing::split_pattern_test {

using Parts = std::vector<std::pair<std::string, bool>>;

Parts parts(const SplitPattern& pattern, const std::string& text) {
  Parts found;
  pattern.split(text, [&](std::string_view part, bool matches) {
    found.emplace_back(std::string(part), matches);
  });
  return found;
}

TEST(SplitPattern, visits_matches_and_the_text_between_them) {
  const SplitPattern digits(R"(\p{N}+)");
  EXPECT_EQ(parts(digits, "a12b3"), (Parts{{"a", false}, {"12", true}, {"b", false}, {"3", true}}));
  EXPECT_EQ(parts(digits, "ab"), (Parts{{"ab", false}}));
  EXPECT_EQ(parts(digits, ""), Parts{});
}

TEST(SplitPattern, an_empty_match_splits_the_text) {
  const SplitPattern pattern("x*");
  // Between characters, of two bytes too, and none is lost.
  EXPECT_EQ(parts(pattern, "a\xc3\xa9xb"),
            (Parts{{"a", false}, {"\xc3\xa9", false}, {"x", true}, {"b", false}}));
}

TEST(SplitPattern, spaces_are_those_of_unicode) {
  const SplitPattern spaces(R"(\s+)"), others(R"(\S+)"), word(R"([^\s\p{L}]+)");
  const std::string nbsp = "\xc2\xa0", mongolian = "\xe1\xa0\x8e", ideographic = "\xe3\x80\x80";
  EXPECT_EQ(parts(spaces, "a" + nbsp + ideographic + "b"),
            (Parts{{"a", false}, {nbsp + ideographic, true}, {"b", false}}));
  EXPECT_EQ(parts(spaces, mongolian), (Parts{{mongolian, false}}));  // no White_Space since 6.3
  EXPECT_EQ(parts(others, mongolian), (Parts{{mongolian, true}}));
  EXPECT_EQ(parts(word, mongolian), (Parts{{mongolian, true}}));
}

TEST(SplitPattern, letters_without_case_match_in_any_script) {
  const SplitPattern pattern(R"((?i:'s)|\p{L}+)");
  EXPECT_EQ(parts(pattern, "'S"), (Parts{{"'S", true}}));
  EXPECT_EQ(parts(pattern, "'\xc5\xbf"), (Parts{{"'\xc5\xbf", true}}));  // long s folds to s
  EXPECT_EQ(parts(pattern, "\xd0\xb4\xd0\xb0"), (Parts{{"\xd0\xb4\xd0\xb0", true}}));
}

TEST(SplitPattern, classes_are_those_of_unicode) {
  const SplitPattern words(R"(\w+)"), digits(R"(\d+)");
  EXPECT_EQ(parts(words, "\xc3\xa9"), (Parts{{"\xc3\xa9", true}}));
  EXPECT_EQ(parts(digits, "\xd9\xa3"), (Parts{{"\xd9\xa3", true}}));  // Arabic 3
}

// What the package `tokenizers` makes of them, by Oniguruma.
TEST(SplitPattern, syntax_that_pcre2_reads_differently_works_as_in_oniguruma) {
  struct Case {
    const char *pattern, *text;
    std::vector<std::string> expected;
  };
  const std::vector<Case> cases{
      {R"(\w+)",
       "e\xcc\x81_1\xe2\x93\x90\xe2\x80\x8d",  // a mark, a letter in a circle, a joiner
       {"e\xcc\x81_1\xe2\x93\x90", "\xe2\x80\x8d"}},
      {R"(\W+)", "e\xcc\x81!?", {"e\xcc\x81", "!?"}},
      {R"(\w+)", "a\xc2\xb2-", {"a\xc2\xb2", "-"}},  // superscripts, though in no class
      {R"([\w]+)", "a\xc2\xb2-", {"a", "\xc2\xb2-"}},
      {R"(\h+)", "ab12 \t", {"ab12", " \t"}},
      {R"([^\H]+)", "ab12 \t", {"ab12", " \t"}},
      {R"(\p{N}{1,3}+)", "1234567", {"1234567"}},
      {R"(a{,2})", "aaab", {"aa", "a", "b"}},
      {R"([a[bc]]+)", "abc[]x", {"abc", "[]x"}},
      {R"( ?[^(\s|[.,!?])]+)", "one (two).", {"one", " (", "two", ")."}},  // of BLOOM
      {R"([\S]+)",
       "a\xe1\xa0\x8e"
       "b c",
       {"a\xe1\xa0\x8e"
        "b",
        " ", "c"}},
      {R"([]a]+)", "]a[", {"]a", "["}},
      {R"([^]a]+)", "x]a[", {"x", "]a", "["}},
      {R"(\p{Greek}+)", "\xce\xb1\xcd\x82", {"\xce\xb1", "\xcd\x82"}},  // by script, no extensions
      {R"(\s+$)", "a  \nb ", {"a", "  ", "\nb", " "}},
      // Of Unicode 15 and 16: an emoji, a digit, a letter, a mark, a character of Han.
      {R"([\p{P}\p{S}]+)", "a!\U0001fae8b", {"a", "!\U0001fae8", "b"}},
      {R"([^\s\p{L}\p{N}]+)",
       "!\U0001e4f0\U00010d50\U0001fae9",
       {"!", "\U0001e4f0\U00010d50", "\U0001fae9"}},
      {R"(\d+)",
       "\U0001e4f0"
       "1a",
       {"\U0001e4f0"
        "1",
        "a"}},
      {R"([\D]+)",
       "\U0001e4f0"
       "1a",
       {"\U0001e4f0"
        "1",
        "a"}},
      {R"(\w+)", "\U00010d50\u0897!", {"\U00010d50\u0897", "!"}},
      {R"([\P{L}]+)", "\U00010d50\u0897!", {"\U00010d50", "\u0897!"}},
      {R"(\p{Han}+)", "\u4e00\U0002ebf0.", {"\u4e00\U0002ebf0", "."}},
      {R"(\P{Hani}+)", "\u4e00\U0002ebf0.", {"\u4e00\U0002ebf0", "."}},
  };
  for (const auto& [pattern, text, expected] : cases) {
    std::vector<std::string> found;
    for (const auto& part : parts(SplitPattern(pattern), text))
      found.push_back(part.first);
    EXPECT_EQ(found, expected) << pattern;
  }
}

TEST(SplitPattern, invalid_and_ambiguous_patterns_are_an_error) {
  const auto expect_refused = [](const std::string& name, const std::string& pattern,
                                 std::initializer_list<std::string> pins) {
    expect_refusal<DataError>("data/split_pattern", name, pins,
                              [&] { const SplitPattern taken(pattern); });
  };
  // clang-format off
  for (const std::string pattern : {
           "x[a&&b]", "[[:alpha:]]", "[a[^b]]", R"(\b)", R"(\K)", R"(\R)", R"(\X)", R"(\1)", "(?m)a",
           "(?<n>a)", "(?x)a", R"(\pL)", R"([\W])", R"([\P{Han}])",
           "(?i:\xc3\xa9)", "(?i:ss)", "(?i:[^a])", R"((?i:\p{Lu}))", "a{2}?", R"([a-\d])",
           R"([\d-a])", "a{x}", R"(\xe9)", "*a", "(?:a", "a)", "a(b", "[a", "[", "(", "\\", "a**",
           "a{1,2}{2}", R"(\p{L)", R"(\x{61)", "(?i:(?i)a)", "(?>a)", "(?:a?){2}",
           "(?:a|)+"})
    expect_refused(pattern, pattern, {pattern});
  // clang-format on
  // Refused by PCRE2, in its words; and one that is quoted whole.
  for (const std::string& pattern : {std::string("a{2,1}"), std::string("[b-a]"),
                                     std::string(R"(\p{Letter})"), std::string(60000, '[')})
    EXPECT_THROW(SplitPattern{pattern}, DataError) << pattern.substr(0, 20);
  expect_refused("a long pattern", std::string(70000, '['), {"70000", "65536"});
}

TEST(SplitPattern, threads_share_a_pattern) {
  const SplitPattern pattern(R"(\p{L}+|\s+)");
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text += "word ";
  std::vector<std::thread> threads;
  std::vector<std::size_t> counts(4);
  for (std::size_t t = 0; t < counts.size(); ++t)
    threads.emplace_back([&, t] { counts[t] = parts(pattern, text).size(); });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(counts, std::vector<std::size_t>(4, 4000));
}

// A match that looks at each space again, as many as they are.
TEST(SplitPattern, a_long_run_of_spaces_is_split) {
  const SplitPattern pattern(R"(\s*[\r\n]+|\s+(?!\S)|\s+)");
  const std::size_t n = std::size_t{12} << 20;
  std::vector<std::size_t> sizes;
  pattern.split(std::string(n, ' ') + "x",
                [&](std::string_view part, bool) { sizes.push_back(part.size()); });
  EXPECT_EQ(sizes, (std::vector<std::size_t>{n - 1, 1, 1}));
}

// A pattern that backtracks over the whole word from each of its characters.
TEST(SplitPattern, a_pattern_without_end_is_an_error) {
  const SplitPattern pattern(R"((a+)+[bc])");
  EXPECT_THROW(parts(pattern, std::string(40, 'a')), DataError);
}

}  // namespace lockstep::testing::split_pattern_test

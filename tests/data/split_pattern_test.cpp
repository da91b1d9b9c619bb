#include "data/split_pattern.h"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "core/error.h"

namespace lockstep {
namespace {

using Parts = std::vector<std::pair<std::string, bool>>;

Parts parts(const SplitPattern& pattern, const std::string& text) {
  Parts found;
  pattern.split(text, [&](std::string_view part, bool matches) {
    found.emplace_back(std::string(part), matches);
  });
  return found;
}

TEST(SplitPattern, gives_matches_and_what_is_between) {
  const SplitPattern digits(R"(\p{N}+)");
  EXPECT_EQ(parts(digits, "a12b3"), (Parts{{"a", false}, {"12", true}, {"b", false}, {"3", true}}));
  EXPECT_EQ(parts(digits, "ab"), (Parts{{"ab", false}}));
  EXPECT_EQ(parts(digits, ""), Parts{});
}

TEST(SplitPattern, a_match_of_nothing_cuts_there) {
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

TEST(SplitPattern, what_is_no_pattern_is_refused) {
  try {
    const SplitPattern broken("a(b");
    FAIL() << "taken";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("the pattern a(b cannot be used"), std::string::npos)
        << error.what();
  }
}

TEST(SplitPattern, threads_share_one) {
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

// A pattern that backtracks over the whole word from each of its characters.
TEST(SplitPattern, one_that_would_take_for_ever_is_an_error) {
  const SplitPattern pattern(R"((a+)+[bc])");
  EXPECT_THROW(parts(pattern, std::string(40, 'a')), DataError);
}

}  // namespace
}  // namespace lockstep

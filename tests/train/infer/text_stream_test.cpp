#include "train/infer/text_stream.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep::text_stream_test {

// Pieces in order, with the final text after each; `rest` remains at the end.
struct Row {
  const char* what;
  std::vector<std::string> stops;
  std::vector<std::pair<std::string, std::string>> pieces;
  std::string rest;
};

TEST(TextStream, settles_whole_characters_that_begin_no_stop_string) {
  const Row rows[] = {
      {"characters",
       {},
       {{"a\xe6", "a"}, {"\xb0", ""}, {"\xb4\xf0\x9f", "\xe6\xb0\xb4"}},
       "\xf0\x9f"},
      {"no characters", {}, {{"\x80\xffx", "\x80\xffx"}, {"\xc3", ""}, {"(", "\xc3("}}, ""},
      {"a stop string may begin",
       {"END", "\n\n"},
       {{"one E", "one "}, {"N", ""}, {"d EN", "ENd "}},
       "EN"},
      {"it was none", {"aab"}, {{"aa", ""}, {"a", "a"}, {"c", "aac"}, {"aa", ""}}, "aa"}};
  for (const auto& [what, stops, pieces, rest] : rows) {
    SCOPED_TRACE(what);
    TextStream text(stops);
    for (const auto& [piece, settled] : pieces) {
      EXPECT_TRUE(text.append(piece));
      EXPECT_EQ(text.settled(), settled);
    }
    EXPECT_EQ(text.rest(), rest);
  }
}

TEST(TextStream, ends_before_the_first_stop_string) {
  TextStream text({"END", "\n\n"});
  EXPECT_TRUE(text.append("one EN"));
  EXPECT_EQ(text.settled(), "one ");
  EXPECT_FALSE(text.append("D\n\nmore"));  // across two tokens
  EXPECT_EQ(text.settled(), "");
  EXPECT_EQ(text.text(), "one ");
  EXPECT_FALSE(text.append("still"));
  EXPECT_EQ(text.rest(), "");
  TextStream two({"later", "now"});
  EXPECT_FALSE(two.append("x now and later"));
  EXPECT_EQ(two.text(), "x ");
}

TEST(TextStream, rejects_an_empty_stop_string) {
  EXPECT_THROW(TextStream({""}), UsageError);
}

}  // namespace lockstep::text_stream_test

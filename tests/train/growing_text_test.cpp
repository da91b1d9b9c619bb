#include "train/growing_text.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep::growing_text_test {

TEST(GrowingText, writes_whole_characters) {
  GrowingText text;
  EXPECT_TRUE(text.append("a\xe6"));
  EXPECT_EQ(text.settled(), "a");
  EXPECT_TRUE(text.append("\xb0"));
  EXPECT_EQ(text.settled(), "");
  EXPECT_TRUE(text.append("\xb4\xf0\x9f"));
  EXPECT_EQ(text.settled(), "\xe6\xb0\xb4");
  EXPECT_EQ(text.rest(), "\xf0\x9f");  // cut amid a character
}

TEST(GrowingText, does_not_wait_for_what_is_no_character) {
  GrowingText text;
  text.append("\x80\xff");
  text.append("x\xc3");
  text.append("(");
  EXPECT_EQ(text.settled(), "\x80\xffx\xc3(");
}

TEST(GrowingText, ends_in_front_of_the_first_stop_string) {
  GrowingText text({"END", "\n\n"});
  EXPECT_TRUE(text.append("one E"));
  EXPECT_EQ(text.settled(), "one ");  // E may be the begin of END
  EXPECT_TRUE(text.append("N"));
  EXPECT_EQ(text.settled(), "");
  EXPECT_TRUE(text.append("d EN"));
  EXPECT_EQ(text.settled(), "ENd ");
  EXPECT_FALSE(text.append("D\n\nmore"));  // over the border of tokens
  EXPECT_EQ(text.settled(), "");
  EXPECT_EQ(text.text(), "one ENd ");
  EXPECT_FALSE(text.append("still"));
  EXPECT_EQ(text.rest(), "");
}

TEST(GrowingText, of_two_in_a_token_takes_the_first) {
  GrowingText text({"later", "now"});
  EXPECT_FALSE(text.append("x now and later"));
  EXPECT_EQ(text.text(), "x ");
}

TEST(GrowingText, gives_back_what_was_no_stop_string) {
  GrowingText text({"aab"});
  text.append("aa");
  EXPECT_EQ(text.settled(), "");
  text.append("a");
  EXPECT_EQ(text.settled(), "a");
  text.append("c");
  EXPECT_EQ(text.settled(), "aac");
  text.append("aa");
  EXPECT_EQ(text.rest(), "aa");
}

TEST(GrowingText, refuses_an_empty_stop_string) {
  EXPECT_THROW(GrowingText({""}), UsageError);
}

}  // namespace lockstep::growing_text_test

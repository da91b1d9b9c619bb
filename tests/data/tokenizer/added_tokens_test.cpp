#include "data/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace lockstep::added_tokens_test {

using Parts = std::vector<std::pair<std::string, std::int32_t>>;  // id; -1: text

Parts parts(const std::vector<AddedToken>& tokens, const std::string& text) {
  Parts found;
  AddedTokens(tokens).split(text, [&](std::string_view part, const AddedToken* token) {
    found.emplace_back(std::string(part), token == nullptr ? -1 : token->id);
  });
  return found;
}

AddedToken token(std::int32_t id, const std::string& content) {
  AddedToken made;
  made.id = id;
  made.content = content;
  return made;
}

TEST(AddedTokens, are_found_anywhere) {
  const std::vector<AddedToken> tokens{token(1, "<s>"), token(2, "</s>")};
  EXPECT_EQ(parts(tokens, "<s>a</s><s>"), (Parts{{"<s>", 1}, {"a", -1}, {"</s>", 2}, {"<s>", 1}}));
  EXPECT_EQ(parts(tokens, "<s <s"), (Parts{{"<s <s", -1}}));
  EXPECT_EQ(parts(tokens, ""), Parts{});
  EXPECT_EQ(parts({}, "a"), (Parts{{"a", -1}}));
}

TEST(AddedTokens, the_longest_match_at_a_place_wins) {
  const std::vector<AddedToken> tokens{token(1, "<a"), token(2, "<a><b>"), token(3, "<a>")};
  EXPECT_EQ(parts(tokens, "<a><b"), (Parts{{"<a>", 3}, {"<b", -1}}));
  EXPECT_EQ(parts(tokens, "<a><b>"), (Parts{{"<a><b>", 2}}));
  EXPECT_EQ(parts(tokens, "<<a"), (Parts{{"<", -1}, {"<a", 1}}));
}

TEST(AddedTokens, single_word_tokens_are_not_found_inside_words) {
  auto word = token(1, "cat");
  word.single_word = true;
  EXPECT_EQ(parts({word}, "cat"), (Parts{{"cat", 1}}));
  EXPECT_EQ(parts({word}, "a cat."), (Parts{{"a ", -1}, {"cat", 1}, {".", -1}}));
  EXPECT_EQ(parts({word}, "cats"), (Parts{{"cats", -1}}));
  EXPECT_EQ(parts({word},
                  "\xc3\xa9"
                  "cat"),
            (Parts{{"\xc3\xa9"
                    "cat",
                    -1}}));
}

TEST(AddedTokens, include_adjacent_spaces_with_lstrip_and_rstrip) {
  auto left = token(1, "<l>"), right = token(2, "<r>");
  left.lstrip = true;
  right.rstrip = true;
  const std::string wide = "\xe3\x80\x80";
  EXPECT_EQ(parts({left}, "a " + wide + "<l> b"),
            (Parts{{"a", -1}, {" " + wide + "<l>", 1}, {" b", -1}}));
  EXPECT_EQ(parts({right}, "a <r> " + wide + "b"),
            (Parts{{"a ", -1}, {"<r> " + wide, 2}, {"b", -1}}));
  EXPECT_EQ(parts({left, right}, "<r> <l>"),
            (Parts{{"<r> ", 2}, {"<l>", 1}}));  // the first has them
}

}  // namespace lockstep::added_tokens_test

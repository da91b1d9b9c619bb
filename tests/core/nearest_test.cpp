#include "core/nearest.h"

#include <gtest/gtest.h>
#include <vector>

namespace lockstep::nearest_test {

TEST(Nearest, edits_are_counted_and_a_swap_is_one) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("steps", "stpes"), 1);
  EXPECT_EQ(edit_distance("steps", "step"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, the_nearest_word_is_found_and_a_far_word_has_none) {
  const std::vector<std::string> verbs{"train", "data", "generate", "eval"};
  EXPECT_EQ(nearest("trian", verbs), "train");
  EXPECT_EQ(nearest("generat", verbs), "generate");
  EXPECT_EQ(nearest("xylophone", verbs), "");
  EXPECT_EQ(nearest(std::string(1 << 20, 'x'), verbs), "");
}

TEST(Nearest, a_key_in_the_wrong_table_is_found) {
  const std::vector<std::string> keys{"train.steps", "optimizer.learning_rate"};
  EXPECT_EQ(nearest("train.learning_rate", keys), "optimizer.learning_rate");
  EXPECT_EQ(nearest("learning_rat", keys), "optimizer.learning_rate");
  EXPECT_EQ(nearest("train.step", keys), "train.steps");
}

}  // namespace lockstep::nearest_test

#include "checkpoint/compare.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "checkpoint/checkpointer.h"
#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing::compare_test {

constexpr std::int64_t kElements = 20;

struct Saved {
  int ranks = 1;
  std::function<void(std::int64_t, float&)> change = [](std::int64_t, float&) {};
  DType dtype = DType::fp32;
  const char* second = "b";
};

class Compare : public ::testing::Test {
 protected:
  // Two tensors; ranks have equal parts of the first: 0, 1, 2..., except for `change`.
  void save(std::int64_t step, const Saved& saved = {}) {
    run_thread_ranks(saved.ranks, [&](World& world) {
      Bench bench;
      const auto n = kElements / saved.ranks, begin = n * world.rank();
      const Shape whole{kElements / 2, 2};
      const auto part = bench.poisoned({n}, saved.dtype);
      for (std::int64_t i = 0; i < n; ++i) {
        auto value = static_cast<float>(begin + i);
        saved.change(begin + i, value);
        Bench::set(part, i, value);
      }
      std::vector<StateSlice> state{{"a", whole, unsplit(whole), {0, begin, begin + n}, part}};
      const auto other = bench.integers({1, 2, 3}, {3});
      state.push_back(whole_slice(saved.second, other));
      state.back().owned = world.rank() == 0;
      Checkpointer(directory_.path(), state, {}, &world).save(step, Json());
    });
  }
  CheckpointDifference compare(std::int64_t a, std::int64_t b) const {
    return compare_checkpoints(checkpoint_path(directory_.path(), a),
                               checkpoint_path(directory_.path(), b));
  }
  TemporaryDirectory directory_;
};

TEST_F(Compare, the_same_state_in_other_layouts_and_types_is_equal) {
  save(1);
  save(2, {.ranks = 4});
  save(3);
  save(4, {.dtype = DType::bf16});  // exact for these integers
  for (const int other : {1, 2, 3, 4}) {
    const auto found = compare(1, other);
    EXPECT_TRUE(found.empty());
    EXPECT_EQ(found.same, 2);
  }
}

TEST_F(Compare, reports_how_many_elements_differ_and_by_how_much) {
  save(1);
  save(2, {.ranks = 2, .change = [](std::int64_t i, float& x) {
             if (i == 3) x += 0.5f;
             if (i == 13) x -= 2;
           }});
  const auto found = compare(1, 2);
  ASSERT_EQ(found.tensors.size(), 1u);
  const auto& t = found.tensors[0];
  EXPECT_EQ(t.name, "a");
  EXPECT_EQ(t.shape, (Shape{kElements / 2, 2}));
  EXPECT_EQ(t.differing, 2);
  EXPECT_EQ(t.largest, 2);
  EXPECT_EQ(t.largest_index, 13);
  EXPECT_NEAR(t.relative, std::sqrt(4.25 / 2470), 1e-12);  // the squares of 0 to 19 add up to 2470
  EXPECT_EQ(found.same, 1);
}

TEST_F(Compare, a_nan_in_only_one_checkpoint_is_a_difference) {
  const auto with_nan = [](std::int64_t i, float& x) {
    if (i == 7) x = std::numeric_limits<float>::quiet_NaN();
  };
  save(1, {.change = with_nan});
  save(2, {.ranks = 2, .change = with_nan});
  save(3);
  EXPECT_TRUE(compare(1, 2).empty());
  const auto found = compare(1, 3);
  ASSERT_EQ(found.tensors.size(), 1u);
  EXPECT_EQ(found.tensors[0].differing, 1);
  EXPECT_TRUE(std::isnan(found.tensors[0].largest));
  EXPECT_EQ(found.tensors[0].largest_index, 7);
}

TEST_F(Compare, tensors_in_only_one_checkpoint_are_listed) {
  save(1);
  save(2, {.second = "c"});
  const auto found = compare(1, 2);
  EXPECT_EQ(found.only_in_a, std::vector<std::string>{"b"});
  EXPECT_EQ(found.only_in_b, std::vector<std::string>{"c"});
  EXPECT_EQ(found.same, 1);
}

}  // namespace lockstep::testing::compare_test

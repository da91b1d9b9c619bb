#include "checkpoint/compare.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "checkpoint/checkpointer.h"
#include "dist/thread_world.h"
#include "tests/files.h"
#include "tests/testing.h"

namespace lockstep::compare_test {

constexpr std::int64_t kElements = 20;

class Compare : public ::testing::Test {
 protected:
  // Two tensors, of `ranks` ranks, which have equal parts of the first: 0, 1, 2... but for
  // `change`.
  void save(
      std::int64_t step, int ranks,
      const std::function<void(std::int64_t, float&)>& change = [](std::int64_t, float&) {},
      DType dtype = DType::fp32, const char* second = "b") {
    run_thread_ranks(ranks, [&](World& world) {
      testing::Bench bench;
      const auto n = kElements / ranks, begin = n * world.rank();
      const Shape whole{kElements / 2, 2};
      std::vector<float> values;
      for (std::int64_t i = begin; i < begin + n; ++i) {
        values.push_back(static_cast<float>(i));
        change(i, values.back());
      }
      const auto part = bench.arena.allocate("a", dtype, {n});
      for (std::int64_t i = 0; i < n; ++i) {
        const float value = values[static_cast<std::size_t>(i)];
        if (dtype == DType::fp32)
          part.as<float>()[i] = value;
        else
          part.as<BFloat16>()[i] = to_bf16(value);
      }
      std::vector<StateSlice> state{{"a", whole, unsplit(whole), {0, begin, begin + n}, part}};
      const auto other = bench.integers({1, 2, 3}, {3});
      state.push_back(whole_slice(second, other));
      state.back().owned = world.rank() == 0;
      Checkpointer(directory_.path(), state, {}, &world).save(step, Json());
    });
  }
  CheckpointDifference compare(std::int64_t a, std::int64_t b) const {
    return compare_checkpoints(checkpoint_path(directory_.path(), a),
                               checkpoint_path(directory_.path(), b));
  }
  testing::TemporaryDirectory directory_;
};

TEST_F(Compare, the_same_state_of_other_layouts_is_the_same) {
  save(1, 1);
  save(2, 4);
  save(3, 1);
  for (const int other : {1, 2, 3}) {
    const auto found = compare(1, other);
    EXPECT_TRUE(found.empty());
    EXPECT_EQ(found.same, 2);
  }
}

TEST_F(Compare, says_how_many_elements_differ_and_by_how_much) {
  save(1, 1);
  save(2, 2, [](std::int64_t i, float& x) {
    if (i == 3) x += 0.5f;
    if (i == 13) x -= 2;
  });
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

TEST_F(Compare, a_nan_of_one_alone_is_a_difference) {
  const auto with_nan = [](std::int64_t i, float& x) {
    if (i == 7) x = std::numeric_limits<float>::quiet_NaN();
  };
  save(1, 1, with_nan);
  save(2, 2, with_nan);
  save(3, 1);
  EXPECT_TRUE(compare(1, 2).empty());
  const auto found = compare(1, 3);
  ASSERT_EQ(found.tensors.size(), 1u);
  EXPECT_EQ(found.tensors[0].differing, 1);
  EXPECT_TRUE(std::isnan(found.tensors[0].largest));
  EXPECT_EQ(found.tensors[0].largest_index, 7);
}

TEST_F(Compare, other_types_are_compared_by_their_values) {
  save(1, 1);
  save(
      2, 1, [](std::int64_t, float&) {}, DType::bf16);  // which holds these integers
  EXPECT_TRUE(compare(1, 2).empty());
}

TEST_F(Compare, tensors_of_one_alone_are_named) {
  save(1, 1);
  save(
      2, 1, [](std::int64_t, float&) {}, DType::fp32, "c");
  const auto found = compare(1, 2);
  EXPECT_EQ(found.only_in_a, std::vector<std::string>{"b"});
  EXPECT_EQ(found.only_in_b, std::vector<std::string>{"c"});
  EXPECT_EQ(found.same, 1);
}

}  // namespace lockstep::compare_test

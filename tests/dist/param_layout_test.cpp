#include "dist/param_layout.h"

#include <gtest/gtest.h>
#include <map>

#include "tests/wording.h"

namespace lockstep::testing::param_layout_test {

constexpr auto kAligned = ParamLayout::kAlignedElements;

struct Ids {
  ParamId table, norm, q, k, v, out, bias;
};

// A vocabulary of 37 rows stored as 64, a stacked group, a matrix split by columns, and vectors
// that every tensor rank holds.
ParamLayout layout_of(const ParamLayout::Place& place, Ids* ids = nullptr) {
  ParamLayout layout(place);
  Ids found;
  const int first = layout.add_unit("embedding", Keep::own);
  found.table =
      layout
          .declare_stacked(
              first, {{.name = "table", .shape = {37, 6}, .tensor_dim = 0, .stored_rows = 64}})
          .front();
  const int second = layout.add_unit("layer 0", Keep::layers);
  found.norm = layout.declare_stacked(second, {{.name = "norm", .shape = {6}}}).front();
  const auto group =
      layout.declare_stacked(second, {{.name = "q", .shape = {8, 6}, .tensor_dim = 0},
                                      {.name = "k", .shape = {4, 6}, .tensor_dim = 0},
                                      {.name = "v", .shape = {4, 6}, .tensor_dim = 0}});
  found.q = group[0], found.k = group[1], found.v = group[2];
  found.out =
      layout.declare_stacked(second, {{.name = "out", .shape = {6, 8}, .tensor_dim = 1}}).front();
  found.bias = layout.declare_stacked(second, {{.name = "bias", .shape = {6}}}).front();
  layout.lay_out();
  if (ids != nullptr) *ids = found;
  return layout;
}

class Places : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Places, every_element_is_in_one_shard_of_each_tensor_rank_that_holds_it) {
  const auto [shards, tensors] = GetParam();
  std::map<std::string, std::vector<int>> seen;  // number of holders of each element of the whole
  for (int t = 0; t < tensors; ++t)
    for (int s = 0; s < shards; ++s) {
      const auto layout =
          layout_of({.shard = s, .shards = shards, .tensor = t, .tensors = tensors});
      for (int unit = 0; unit < layout.units(); ++unit) {
        EXPECT_EQ(layout.elements(unit) % (shards * kAligned), 0);
        std::int64_t end = 0;
        for (const auto& segment : layout.segments(unit)) {
          const auto& spec = layout.spec(segment.id);
          auto& counts = seen[spec.name];
          counts.resize(static_cast<std::size_t>(spec.shape.elements()));
          const auto at = layout.indices(segment.id);
          EXPECT_GT(segment.count, 0);
          EXPECT_LE(segment.shard_begin + segment.count, layout.shard_elements(unit));
          EXPECT_EQ(spec.tensor_dim < 0, segment.shard_begin >= layout.replicated_from(unit))
              << spec.name;
          for (auto j = segment.logical_begin; j < segment.logical_begin + segment.count; ++j)
            ++counts.at(
                static_cast<std::size_t>(at.first + j / at.columns * at.stride + j % at.columns));
          end = std::max(end, segment.shard_begin + segment.count);
        }
      }
    }
  for (const auto& [name, counts] : seen)
    for (const int count : counts)
      EXPECT_EQ(count, name == "norm" || name == "bias" ? tensors : 1) << name;
  EXPECT_EQ(seen.size(), 7u);
}

INSTANTIATE_TEST_SUITE_P(all, Places,
                         ::testing::Combine(::testing::Values(1, 2, 3, 8),
                                            ::testing::Values(1, 2, 4)));

TEST(ParamLayout, a_group_is_one_matrix_of_the_parts_of_a_tensor_rank) {
  Ids ids;
  const auto layout = layout_of({.tensor = 1, .tensors = 2}, &ids);
  EXPECT_EQ(layout.group_shape(ids.q), (Shape{8, 6}));
  EXPECT_EQ(layout.group_shape(ids.out), (Shape{6, 4}));
  EXPECT_THROW(layout.group_shape(ids.k), Error);
  EXPECT_TRUE(layout.is_in_group(ids.v, ids.q));
  EXPECT_FALSE(layout.is_in_group(ids.norm, ids.q));
  const auto at = layout.indices(ids.out);
  EXPECT_EQ(at.first, 4);
  EXPECT_EQ(at.columns, 4);
  EXPECT_EQ(at.stride, 8);
  EXPECT_EQ(layout.indices(ids.k).first, 2 * 6);
  EXPECT_EQ(layout.tensor_part(ids.table).stored_size, 32);
  EXPECT_EQ(layout.tensor_part(ids.norm).dim, -1);
}

TEST(ParamLayout, rows_that_pad_a_vocabulary_are_in_no_segment) {
  const auto last = layout_of({.tensor = 3, .tensors = 4});  // rows 48 to 63 of 37
  EXPECT_TRUE(last.segments(0).empty());
  const auto third = layout_of({.tensor = 2, .tensors = 4});  // rows 32 to 47
  ASSERT_EQ(third.segments(0).size(), 1u);
  EXPECT_EQ(third.segments(0)[0].count, 5 * 6);
}

TEST(ParamLayout, replicas_divide_each_shard_into_aligned_parts) {
  const auto layout = layout_of({.shards = 2, .copies = 3});
  EXPECT_EQ(layout.shard_elements(1) % (3 * kAligned), 0);
}

TEST(ParamLayout, a_parameter_that_tensor_ranks_do_not_divide_is_rejected_by_name) {
  ParamLayout layout({.tensors = 3});
  const int unit = layout.add_unit("unit", Keep::own);
  expect_refusal<ConfigError>(
      "dist/param_layout", "tensor ranks", {"q ", "[8, 6]", "3", "8 rows"}, [&] {
        layout.declare_stacked(unit, {{.name = "q", .shape = {8, 6}, .tensor_dim = 0}});
      });
}

}  // namespace lockstep::testing::param_layout_test

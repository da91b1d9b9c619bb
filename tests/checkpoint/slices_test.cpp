#include "checkpoint/slices.h"

#include <gtest/gtest.h>
#include <vector>

#include "core/philox.h"

namespace lockstep::slices_test {

// Index of each element of a piece in the whole tensor, counted one by one.
std::vector<std::int64_t> elements_of(const Shape& whole, const Split& split, const Piece& piece) {
  std::int64_t behind = 1;
  for (int i = split.dim + 1; i < whole.rank; ++i)
    behind *= whole[i];
  std::vector<std::int64_t> part;
  for (std::int64_t i = 0; i < whole.elements(); ++i)
    if (i / behind % whole[split.dim] / split.step == piece.part) part.push_back(i);
  return {part.begin() + piece.begin, part.begin() + piece.end};
}

struct Random {
  std::uint64_t drawn = 0;
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + philox(5, 0, drawn++)[0] % (most - least + 1);
  }
  Shape shape() {
    Shape s;
    s.rank = static_cast<int>(between(1, 4));
    for (int i = 0; i < s.rank; ++i)
      s.size[static_cast<std::size_t>(i)] = between(1, 6);
    return s;
  }
  Split split(const Shape& shape) {
    Split s;
    s.dim = static_cast<int>(between(0, shape.rank - 1));
    s.parts = static_cast<int>(between(1, shape[s.dim]));
    s.step = between((shape[s.dim] + s.parts - 1) / s.parts, shape[s.dim]);
    return s;
  }
  Piece piece(const Shape& shape, const Split& split) {
    Piece p;
    p.part = static_cast<int>(between(0, split.parts - 1));
    const auto elements = part_elements(shape, split, p.part);
    p.begin = between(0, elements);
    p.end = between(p.begin, elements);
    return p;
  }
};

TEST(Slices, a_part_has_the_elements_inside_its_bounds) {
  EXPECT_EQ(part_elements({4, 6}, {1, 4, 2}, 2), 8);
  EXPECT_EQ(part_elements({4, 6}, {1, 4, 2}, 3), 0);
  EXPECT_EQ(part_elements({4, 5}, {1, 3, 2}, 2), 4);
  EXPECT_EQ(part_elements({7}, unsplit({7}), 0), 7);
}

TEST(Slices, runs_visit_each_element_of_a_piece_in_order) {
  Random random;
  for (int round = 0; round < 2000; ++round) {
    const Shape shape = random.shape();
    const Split split = random.split(shape);
    const Piece piece = random.piece(shape, split);
    std::vector<std::int64_t> visited;
    for (Runs runs(shape, split, piece); !runs.done(); runs.advance(runs.count())) {
      EXPECT_EQ(runs.in_piece(), std::ssize(visited));
      for (std::int64_t i = 0; i < runs.count(); ++i)
        visited.push_back(runs.begin() + i);
    }
    ASSERT_EQ(visited, elements_of(shape, split, piece)) << shape << " round " << round;
  }
}

TEST(Slices, the_intersection_of_two_pieces_is_found_for_all_splits) {
  Random random;
  std::int64_t shared = 0;
  for (int round = 0; round < 5000; ++round) {
    const Shape shape = random.shape();
    const Split split_a = random.split(shape), split_b = random.split(shape);
    const Piece a = random.piece(shape, split_a), b = random.piece(shape, split_b);
    const auto all_a = elements_of(shape, split_a, a), all_b = elements_of(shape, split_b, b);
    std::vector<std::pair<std::int64_t, std::int64_t>> expected, found;
    for (std::size_t i = 0; i < all_a.size(); ++i)
      for (std::size_t j = 0; j < all_b.size(); ++j)
        if (all_a[i] == all_b[j]) expected.emplace_back(i, j);
    intersect(Runs(shape, split_a, a), Runs(shape, split_b, b),
              [&](std::int64_t in_a, std::int64_t in_b, std::int64_t count) {
                EXPECT_GT(count, 0);
                for (std::int64_t i = 0; i < count; ++i)
                  found.emplace_back(in_a + i, in_b + i);
              });
    ASSERT_EQ(found, expected) << shape << " round " << round;
    shared += std::ssize(found);
  }
  EXPECT_GT(shared, 3000);  // the draws are not all empty
}

TEST(Slices, equal_splits_meet_in_one_run) {
  const Shape shape{100, 8};
  const Split columns{1, 2, 4};
  int runs = 0;
  intersect(Runs(shape, unsplit(shape), {0, 0, 800}), Runs(shape, unsplit(shape), {0, 3, 700}),
            [&](auto, auto, std::int64_t count) { runs += count == 697 ? 1 : 100; });
  EXPECT_EQ(runs, 1);
  intersect(Runs(shape, columns, {1, 0, 400}), Runs(shape, columns, {1, 0, 400}),
            [&](auto, auto, std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 101);  // one run per row of a column
}

}  // namespace lockstep::slices_test

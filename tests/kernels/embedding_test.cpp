#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include "tests/kernels/operator_case.h"

namespace lockstep::testing::embedding_test {

// A part of the table accepts the ids of other parts, but not ids outside the whole table.
TEST(Embedding, ids_outside_the_whole_table_are_rejected_by_value) {
  Bench b;
  const auto weight = b.random({5, 8}, DType::fp32), y = b.poisoned({2, 8}, DType::fp32);
  const auto forward = [&](std::int32_t id, const EmbeddingPart& part) {
    embedding_forward(b.stream,
                      {.y = y, .ids = b.integers({1, id}), .weight = weight, .part = part});
  };
  const auto backward = [&](std::int32_t id, const EmbeddingPart& part) {
    embedding_backward(b.stream, b.arena,
                       {.dweight = weight, .dy = y, .ids = b.integers({1, id}), .part = part});
  };
  const EmbeddingPart part{.first_id = 5, .table_rows = 20};
  forward(19, part);
  backward(19, part);
  const std::tuple<std::int32_t, EmbeddingPart, const char*> refused[] = {
      {5, {}, "id 5 is outside [0, 5)"},
      {-1, {}, "id -1 is outside [0, 5)"},
      {20, part, "id 20 is outside [0, 20)"},
      {-1, part, "id -1 is outside [0, 20)"},
      {0, {.first_id = 16, .table_rows = 20}, "rows 16+5 of a table of 20"},
      {0, {.position_begin = 1, .position_end = 3}, "positions of tokens [1, 3) of 2"}};
  for (const auto& [id, of, why] : refused) {
    expect_refused(why, [&] { forward(id, of); });
    expect_refused(why, [&] { backward(id, of); });
  }
}

}  // namespace lockstep::testing::embedding_test

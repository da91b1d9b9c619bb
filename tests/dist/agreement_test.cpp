#include "dist/agreement.h"

#include <gtest/gtest.h>

#include "core/machine.h"
#include "dist/thread_world.h"
#include "tests/files.h"

namespace lockstep::agreement_test {

using testing::expect_contains;

// What agree() throws on each rank, "" for nothing.
std::vector<std::string> refusals(int ranks, const std::function<Fields(int rank)>& fields_of) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](World& world) {
    try {
      agree(world, "configuration", fields_of(world.rank()));
    } catch (const ConfigError& error) {
      said[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  return said;
}

TEST(Agreement, is_silent_on_equal_values) {
  for (const auto& said : refusals(4, [](int) {
         return Fields{{"version", "0.1.0"}, {"commit", ""}};
       }))
    EXPECT_EQ(said, "");
  for (const auto& said : refusals(2, [](int) { return Fields{}; }))
    EXPECT_EQ(said, "");
}

TEST(Agreement, names_what_differs_and_where_alike_on_every_rank) {
  const auto all = refusals(6, [](int rank) {
    Fields fields{{"train.steps", rank == 3 ? "200" : "100"},
                  {"train.seed", "1"},
                  {"model.family", rank < 3 ? "llama" : "gpt2"}};
    if (rank == 5) fields.emplace_back("data.mask", "true");
    return fields;
  });
  const auto on = [](int rank) { return str("rank ", rank, " (host ", host_name(), ")"); };
  for (const auto& text : all)
    EXPECT_EQ(text,
              str("the ranks differ in their configuration: train.steps is 200 on ", on(3),
                  ", 100 on ranks 0-2, 4, 5; model.family is gpt2 on ", on(3), ", ", on(4), ", ",
                  on(5), ", llama on ", on(0), ", ", on(1), ", ", on(2), "; data.mask is true on ",
                  on(5), ", not set on ranks 0-4; start all with the same"));
}

TEST(Agreement, shows_a_few_of_many_differences) {
  const auto all = refusals(2, [](int rank) {
    Fields fields;
    for (int i = 0; i < 20; ++i)
      fields.emplace_back(str("key", i), str(rank));
    return fields;
  });
  expect_contains(all[1], "key7 is");
  EXPECT_EQ(all[1].find("key8"), std::string::npos) << all[1];
  expect_contains(all[1], "and 12 more");
}

TEST(Agreement, lists_ranks_in_runs) {
  EXPECT_EQ(rank_list({4}), "rank 4");
  EXPECT_EQ(rank_list({0, 1}), "ranks 0, 1");
  EXPECT_EQ(rank_list({0, 1, 2, 4, 6, 7, 8, 9}), "ranks 0-2, 4, 6-9");
}

}  // namespace lockstep::agreement_test

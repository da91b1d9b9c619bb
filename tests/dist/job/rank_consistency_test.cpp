#include "dist/job/rank_consistency.h"

#include <gtest/gtest.h>

#include "tests/dist/words.h"
#include "tests/support/thread_world.h"

namespace lockstep::testing::agreement_test {

// Error of agree() on each rank; empty if it throws none.
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

TEST(RankConsistency, accepts_equal_values) {
  for (const auto& said : refusals(4, [](int) {
         return Fields{{"version", "0.1.0"}, {"commit", ""}};
       }))
    EXPECT_EQ(said, "");
  for (const auto& said : refusals(2, [](int) { return Fields{}; }))
    EXPECT_EQ(said, "");
}

TEST(RankConsistency, throws_the_same_error_with_names_values_and_ranks_everywhere) {
  const auto all = refusals(6, [](int rank) {
    Fields fields{{"train.steps", rank == 3 ? "200" : "100"},
                  {"train.seed", "1"},
                  {"model.family", rank < 3 ? "llama" : "gpt2"}};
    if (rank == 5) fields.emplace_back("data.mask", "true");
    return fields;
  });
  expect_words("dist/rank_consistency", "three keys", all[0],
               {"train.steps is 200", "100", "model.family is gpt2", "llama", "data.mask is true"});
  EXPECT_EQ(all, std::vector<std::string>(6, all[0]));
}

TEST(RankConsistency, shows_a_few_of_many_differences) {
  const auto all = refusals(2, [](int rank) {
    Fields fields;
    for (int i = 0; i < 20; ++i)
      fields.emplace_back(str("key", i), str(rank));
    return fields;
  });
  expect_words("dist/rank_consistency", "twenty keys", all[1], {"key7", "12"});
  EXPECT_EQ(all[1].find("key8"), std::string::npos) << all[1];
}

// Counts what a rank sends.
class CountingWorld final : public WorldOver {
 public:
  using WorldOver::WorldOver;
  std::vector<std::string> exchange(const std::string& mine) override {
    sent += mine.size();
    return under_.exchange(mine);
  }
  std::size_t sent = 0;
};

TEST(RankConsistency, sends_a_hash_instead_of_equal_fields) {
  run_thread_ranks(3, [&](World& world) {
    CountingWorld counting(world);
    Fields fields;
    for (int i = 0; i < 100; ++i)
      fields.emplace_back(str("key", i), std::string(1000, 'x'));
    agree(counting, "configuration", fields);
    EXPECT_LE(counting.sent, 32u);
  });
}

TEST(RankConsistency, names_a_few_of_many_values) {
  const auto all = refusals(12, [](int rank) { return Fields{{"pid", str(rank)}}; });
  EXPECT_NE(all[0].find("and 4 more values"), std::string::npos) << all[0];
}

TEST(RankConsistency, counts_ranks_after_sixteen_runs) {
  std::vector<int> even;
  for (int rank = 0; rank < 100; rank += 2)
    even.push_back(rank);
  const auto text = rank_list(even);
  EXPECT_TRUE(text.ends_with("28, 30 and 34 more")) << text;
  even.resize(16);
  EXPECT_TRUE(rank_list(even).ends_with("28, 30")) << rank_list(even);
}

TEST(RankConsistency, lists_ranks_in_runs) {
  EXPECT_EQ(rank_list({4}), "rank 4");
  EXPECT_EQ(rank_list({0, 1}), "ranks 0, 1");
  EXPECT_EQ(rank_list({0, 1, 2, 4, 6, 7, 8, 9}), "ranks 0-2, 4, 6-9");
}

}  // namespace lockstep::testing::agreement_test

// Which host's copy of each file a restore reads.
#include "checkpoint/restore_plan.h"

#include <algorithm>
#include <map>
#include <random>

#include "checkpoint/partners.h"
#include "tests/testing.h"

namespace lockstep::testing::restore_plan_test {

using Shared = std::set<std::pair<std::int64_t, std::string>>;
constexpr int kShared = RestorePlan::kShared, kNowhere = RestorePlan::kNowhere;

HeldFiles held(int host, std::int64_t step, std::vector<std::size_t> files,
               std::size_t files_in_all = 4) {
  return {.host = host,
          .step = step,
          .save = str("save of ", step),
          .files_in_all = files_in_all,
          .files = std::move(files)};
}

std::vector<int> sources(const RestorePlan& plan, int host) {
  std::vector<int> all;
  for (std::size_t file = 0; file < plan.holders.size(); ++file)
    all.push_back(plan.source_of(file, host));
  return all;
}

TEST(RestorePlan, reads_own_files_then_those_of_partners_then_the_shared_directory) {
  // Four hosts; each has its own file and that of the host two before it.
  const std::vector<HeldFiles> whole{held(0, 7, {0, 2}), held(1, 7, {1, 3}), held(2, 7, {0, 2}),
                                     held(3, 7, {1, 3})};
  struct Case {
    const char* what;
    std::vector<int> lost;
    Shared shared;
    int host;
    std::vector<int> sources;
    std::size_t missing;
  };
  const Shared same{{7, "save of 7"}}, other{{7, "another save"}};
  for (const auto& [what, lost, shared, host, expected, missing] : std::vector<Case>{
           {"all are there", {}, {}, 1, {0, 1, 0, 1}, 0},
           {"a spare in the place of host 1", {1}, {}, 1, {0, 3, 0, 3}, 0},
           {"two neighbours are lost", {2, 3}, {}, 3, {0, 1, 0, 1}, 0},
           {"both copies are lost", {1, 3}, {}, 0, {0, kNowhere, 0, kNowhere}, 2},
           {"both are lost, but the disk has them", {1, 3}, same, 0, {0, kShared, 0, kShared}, 0},
           {"the disk has another save", {1, 3}, other, 0, {0, kNowhere, 0, kNowhere}, 2},
       }) {
    auto left = whole;
    std::erase_if(left, [&, gone = lost](const HeldFiles& files) {
      return std::ranges::find(gone, files.host) != gone.end();
    });
    const auto plans = plan_restore(left, shared);
    ASSERT_EQ(plans.size(), 1U) << what;
    EXPECT_EQ(sources(plans[0], host), expected) << what;
    EXPECT_EQ(plans[0].missing(), missing) << what;
  }
}

TEST(RestorePlan, a_source_that_failed_is_not_used_again) {
  auto plan = plan_restore(std::vector{held(0, 7, {0, 1}, 2), held(1, 7, {0, 1}, 2)},
                           {{7, "save of 7"}})[0];
  EXPECT_EQ(sources(plan, 0), (std::vector<int>{0, 0}));
  plan.drop(0, 1);
  EXPECT_EQ(sources(plan, 0), (std::vector<int>{0, 1}));
  plan.drop(1);
  EXPECT_EQ(sources(plan, 0), (std::vector<int>{0, kShared}));
  EXPECT_EQ(plan.missing(), 0U);
  plan.drop(kShared, 1);
  EXPECT_EQ(sources(plan, 0), (std::vector<int>{0, kNowhere}));
  EXPECT_EQ(plan.missing(), 1U);
}

// Each host of a replica needs the files of all hosts of the replica. Each file has two copies.
TEST(RestorePlan, hosts_serve_equal_numbers_of_files) {
  for (const int hosts : {2, 8, 64})
    for (int replica = 1; replica <= hosts; replica *= 2)
      for (const bool neighbours : {false, true}) {
        std::vector<HeldFiles> all;
        for (int host = 0; host < hosts; ++host) {
          const auto count = static_cast<std::size_t>(hosts);
          std::vector<std::size_t> files{static_cast<std::size_t>(host)};
          for (std::size_t other = 0; other < count; ++other)
            if (partner_of(other, count) == static_cast<std::size_t>(host)) files.push_back(other);
          std::ranges::sort(files);
          all.push_back(held(host, 1, files, count));
        }
        const auto plan = plan_restore(all)[0];
        std::map<int, int> served;
        const int stride = neighbours ? 1 : hosts / replica;
        for (int host = 0; host < hosts; ++host)
          for (int file = 0; file < hosts; ++file) {
            const bool is_needed =
                neighbours ? host / replica == file / replica : host % stride == file % stride;
            const int source = plan.source_of(static_cast<std::size_t>(file), host);
            if (is_needed && source != host) ++served[source];
          }
        int most = 0, sum = 0;
        for (const auto& [host, count] : served) {
          most = std::max(most, count);
          sum += count;
        }
        EXPECT_LE(most, (sum + hosts - 1) / hosts + 1)
            << hosts << " hosts, replicas of " << replica << ", neighbours " << neighbours;
      }
}

// A second program answers by search: which steps can be restored, and from where.
TEST(RestorePlan, equals_a_search_for_random_holdings) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int complete = 0;
  for (int round = 0; round < 2000; ++round) {
    const int hosts = 1 + below(6), files = 1 + below(6), chance = 1 + below(4);
    std::vector<HeldFiles> all;
    Shared shared;
    for (const std::int64_t step : {3, 5, 9}) {
      if (below(4) == 0) shared.emplace(step, below(2) == 0 ? str("save of ", step) : "other");
      for (int host = 0; host < hosts; ++host) {
        if (below(8) == 0) continue;
        std::vector<std::size_t> here;
        for (int file = 0; file < files; ++file)
          if (below(chance + 1) > 0) here.push_back(static_cast<std::size_t>(file));
        all.push_back(held(host, step, here, static_cast<std::size_t>(files)));
      }
    }
    std::ranges::shuffle(all, random);
    const auto holds = [&](int host, std::int64_t step, int file) {
      return std::ranges::any_of(all, [&](const HeldFiles& of) {
        return of.host == host && of.step == step &&
               std::ranges::find(of.files, static_cast<std::size_t>(file)) != of.files.end();
      });
    };
    std::int64_t before = INT64_MAX;
    for (const auto& plan : plan_restore(all, shared)) {
      ASSERT_LT(plan.step, before);
      before = plan.step;
      const bool on_disk = shared.contains({plan.step, str("save of ", plan.step)});
      std::size_t missing = 0;
      for (int file = 0; file < files; ++file) {
        for (int host = 0; host < hosts; ++host) {
          int expected = on_disk ? kShared : kNowhere;
          for (int back = hosts - 1; back >= 0; --back)  // the nearest is found last
            if (const int other = (host + hosts - back) % hosts; holds(other, plan.step, file))
              expected = other;
          ASSERT_EQ(plan.source_of(static_cast<std::size_t>(file), host), expected);
          if (host == 0 && expected == kNowhere) ++missing;
        }
      }
      ASSERT_EQ(plan.missing(), missing);
      complete += missing == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(complete, 1000);
}

}  // namespace lockstep::testing::restore_plan_test

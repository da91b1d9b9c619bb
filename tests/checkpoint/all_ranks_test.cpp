#include "checkpoint/all_ranks.h"

#include <gtest/gtest.h>

#include "tests/files.h"
#include "tests/support/thread_world.h"

namespace lockstep::testing::all_ranks_test {

constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // largest message: dist/job/control.h

// A world whose messages are as short as those of a job.
class ShortMessages final : public WorldOver {
 public:
  using WorldOver::WorldOver;
  std::vector<std::string> exchange(const std::string& mine) override {
    auto all = under_.exchange(mine);
    std::size_t bytes = 0;
    for (const auto& text : all)
      bytes += text.size();
    EXPECT_LE(bytes, kMostBytes);
    return all;
  }
  std::vector<std::string> gather(const std::string& tag, const std::string& mine) override {
    EXPECT_LE(mine.size(), kMostBytes);
    return under_.gather(tag, mine);
  }
  std::string broadcast(const std::string& tag, const std::string& text) override {
    EXPECT_LE(text.size(), kMostBytes);
    return under_.broadcast(tag, text);
  }
};

void on_ranks(int ranks, const std::function<void(const AllRanks&)>& body) {
  run_thread_ranks(ranks, [&](World& world) {
    ShortMessages messages(world);
    body(AllRanks(&messages, "test"));
  });
}

std::string text_of(int rank, std::size_t size) {
  std::string text(size, static_cast<char>('a' + rank));
  for (std::size_t i = 0; i < size; i += 1000)
    text[i] = static_cast<char>('0' + i / 1000 % 10);
  return text;
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(AllRanks, broadcast_texts_of_any_length) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, 8 * kMiB, 8 * kMiB + 1, 40 * kMiB})
    on_ranks(2, [&](const AllRanks& ranks) {
      const auto text = text_of(7, size);
      EXPECT_TRUE(ranks.told(ranks.is_first() ? text : "nothing") == text) << size;
    });
}

TEST(AllRanks, exchange_texts_of_any_length) {
  on_ranks(3, [](const AllRanks& ranks) {
    for (const int longest : {0, 1, 2}) {
      const auto size_of = [&](int rank) {
        return rank == longest ? 17 * kMiB + 3 : rank * std::size_t{10};
      };
      const auto say = [&] { return text_of(ranks.rank(), size_of(ranks.rank())); };
      const auto all = ranks.act(say);
      const auto exchanged = ranks.exchanged(say());
      ASSERT_EQ(all.size(), ranks.is_first() ? 3u : 0u);
      for (int rank = 0; rank < 3; ++rank) {
        const auto expected = text_of(rank, size_of(rank));
        EXPECT_TRUE(exchanged[static_cast<std::size_t>(rank)] == expected);
        if (ranks.is_first()) {
          EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == expected);
        }
      }
    }
  });
}

TEST(AllRanks, act_on_a_single_rank) {
  on_ranks(3, [](const AllRanks& ranks) {
    int calls = 0;
    ranks.act_if(ranks.rank() == 1, [&] { ++calls; });
    EXPECT_EQ(calls, ranks.rank() == 1 ? 1 : 0);
  });
}

TEST(AllRanks, act_on_rank_0_with_its_result_known_to_all) {
  on_ranks(3, [](const AllRanks& ranks) {
    int calls = 0, acted = 0;
    ranks.act_first([&] { ++calls; }, [&] { ++acted; });
    EXPECT_EQ(calls, ranks.is_first() ? 1 : 0);
    EXPECT_EQ(acted, 1);
    const auto fail = [&] { ranks.act_first([] { throw StorageError("full"); }); };
    try {
      fail();
      ADD_FAILURE() << "nothing thrown";
    } catch (const StorageError& error) {
      EXPECT_STREQ(error.what(), "rank 0: full");
    }
    EXPECT_EQ(ranks.told("well"), "well");
  });
}

// Counts the calls of one rank.
class CountedMessages final : public WorldOver {
 public:
  using WorldOver::WorldOver;
  std::vector<std::string> gather(const std::string& tag, const std::string& mine) override {
    ++gathers;
    return under_.gather(tag, mine);
  }
  std::string broadcast(const std::string& tag, const std::string& text) override {
    ++broadcasts;
    return under_.broadcast(tag, text);
  }
  int gathers = 0, broadcasts = 0;
};

TEST(AllRanks, need_one_message_each_way_for_an_action) {
  run_thread_ranks(3, [](World& world) {
    CountedMessages counted(world);
    const AllRanks ranks(&counted, "test");
    ranks.act([] { return "short"; });
    EXPECT_EQ(counted.gathers, 1);
    EXPECT_EQ(counted.broadcasts, 1);
    ranks.act_first([] {});
    EXPECT_EQ(counted.gathers, 1);
    EXPECT_EQ(counted.broadcasts, 2);
  });
}

// All ranks throw exactly this type, although `act` throws only on some of them.
template <class Thrown>
void throws_on_all(const std::function<void(int rank)>& act, const std::string& expected,
                   int exit_code) {
  on_ranks(3, [&](const AllRanks& ranks) {
    try {
      ranks.act([&]() -> std::string {
        act(ranks.rank());
        return "";
      });
      ADD_FAILURE() << "nothing thrown";
    } catch (const Error& error) {
      EXPECT_EQ(typeid(error), typeid(Thrown));
      EXPECT_EQ(error.exit_code(), exit_code);
      EXPECT_EQ(error.what(), expected);
    }
    EXPECT_EQ(ranks.told("well"), "well");  // the ranks can still exchange messages
  });
}
template <class Thrown>
void keeps_its_type(int exit_code) {
  throws_on_all<Thrown>(
      [](int rank) {
        if (rank > 0) throw Thrown("no");
      },
      "rank 1: no", exit_code);
}

TEST(AllRanks, exit_with_the_code_of_the_first_failed_rank) {
  keeps_its_type<Error>(1);
  keeps_its_type<UsageError>(64);
  keeps_its_type<DataError>(65);
  keeps_its_type<AccessError>(65);
  keeps_its_type<StorageError>(74);
  keeps_its_type<UnreachableError>(75);
  keeps_its_type<TransientError>(75);
  keeps_its_type<RefusedError>(77);
  keeps_its_type<ConfigError>(78);
  throws_on_all<Error>(
      [](int rank) {
        if (rank == 1) throw std::runtime_error("what");
      },
      "rank 1: what", 1);
}

TEST(AllRanks, treat_a_broken_connection_as_a_consequence_of_another_error) {
  throws_on_all<DataError>(
      [](int rank) {
        if (rank == 2) throw DataError("full");
        throw TransientError("broken");
      },
      "rank 2: full", 65);
  throws_on_all<TransientError>([](int) { throw TransientError("broken"); }, "rank 0: broken", 75);
}

}  // namespace lockstep::testing::all_ranks_test

#include "checkpoint/background_save.h"

#include <atomic>
#include <gtest/gtest.h>

#include "tests/dist/ring_world.h"
#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing::background_save_test {

namespace fs = std::filesystem;

// A rank with its own state of eight numbers.
class Rank {
 public:
  Rank(World& world, const fs::path& directory) : world_(world) {
    const int rank = world.rank(), ranks = world.size();
    state = bench.poisoned({kElements}, DType::fp32);
    const Shape whole{ranks * kElements};
    const auto begin = rank * kElements;
    checkpointer_.emplace(
        directory,
        std::vector<StateSlice>{{"w", whole, unsplit(whole), {0, begin, begin + kElements}, state}},
        Retention{}, &world);
    saves.emplace(*checkpointer_, world);
  }
  void fill(float value) { std::fill_n(state.as<float>(), kElements, value); }
  bool holds(float value) const {
    return std::all_of(state.as<float>(), state.as<float>() + kElements,
                       [&](float x) { return x == value; });
  }
  void begin(
      std::int64_t step, std::function<void()> first = [] {}) {
    Json about;
    about.set("step", step);
    saves->begin(
        {.step = step, .copied = {}, .about = about, .keep = {}, .first = std::move(first)});
  }
  void load() {
    checkpointer_->load_newest([](const Json&) {});
  }
  World& world() { return world_; }

  static constexpr std::int64_t kElements = 8;
  Bench bench;
  Tensor state;
  std::optional<BackgroundSave> saves;

 private:
  World& world_;
  std::optional<Checkpointer> checkpointer_;
};

class BackgroundSaves : public ::testing::Test {
 protected:
  void on_ranks(int ranks, const std::function<void(Rank&)>& body) {
    run_thread_ranks(ranks, [&](World& threads) {
      RingWorld world(threads);
      Rank rank(world, path());
      body(rank);
    });
  }
  fs::path path() const { return directory_.path() / "checkpoints"; }
  TemporaryDirectory directory_;
};

std::string error_of(const std::optional<BackgroundSave::Outcome>& outcome) {
  try {
    if (outcome && outcome->error) std::rethrow_exception(outcome->error);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST_F(BackgroundSaves, are_reported_once_when_they_end) {
  on_ranks(1, [](Rank& rank) {
    EXPECT_FALSE(rank.saves->poll());
    rank.fill(1);
    std::atomic<bool> goes_on = false;
    rank.begin(3, [&] { goes_on.wait(false); });
    EXPECT_FALSE(rank.saves->poll()) << "it is under way";
    goes_on = true;
    goes_on.notify_all();
    const auto outcome = rank.saves->wait();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->step, 3);
    EXPECT_EQ(error_of(outcome), "");
    EXPECT_FALSE(rank.saves->poll());
    EXPECT_FALSE(rank.saves->wait());
    rank.fill(2);
    rank.load();
    EXPECT_TRUE(rank.holds(1));
  });
}

// As for a HostStaging: changes before the event are saved, and nothing is read before the event.
TEST_F(BackgroundSaves, read_the_state_after_it_is_copied) {
  on_ranks(1, [](Rank& rank) {
    Stream copying(Device{}, "copying", Stream::Mode::queued);
    std::atomic<bool> goes_on = false;
    copying.enqueue([&goes_on, &rank](Stream&) {
      goes_on.wait(false);
      rank.fill(7);
    });
    rank.fill(1);
    rank.saves->begin({.step = 1, .copied = copying.record(), .about = {}, .keep = {}});
    goes_on = true;
    goes_on.notify_all();
    EXPECT_EQ(error_of(rank.saves->wait()), "");
    rank.fill(2);
    rank.load();
    EXPECT_TRUE(rank.holds(7));
  });
}

TEST_F(BackgroundSaves, end_when_all_ranks_have_written) {
  on_ranks(3, [](Rank& rank) {
    for (const int step : {1, 2, 3}) {
      rank.fill(static_cast<float>(10 * step + rank.world().rank()));
      rank.begin(step);
      EXPECT_EQ(error_of(rank.saves->wait()), "");
    }
    rank.fill(0);
    rank.load();
    EXPECT_TRUE(rank.holds(static_cast<float>(30 + rank.world().rank())));
  });
}

TEST_F(BackgroundSaves, report_a_failure_on_all_ranks_and_keep_older_checkpoints) {
  on_ranks(3, [&](Rank& rank) {
    const bool is_first = rank.world().rank() == 0;
    rank.fill(1);
    rank.begin(1);
    EXPECT_EQ(error_of(rank.saves->wait()), "");
    const auto away = directory_.path() / "away";
    if (is_first) {
      fs::rename(path(), away);
      std::ofstream(path()) << "a file in the way";
    }
    rank.world().exchange("");
    rank.fill(2);
    rank.begin(2);
    expect_contains(error_of(rank.saves->wait()), "rank 0: ");
    if (is_first) {
      fs::remove(path());
      fs::rename(away, path());
    }
    rank.world().exchange("");
    rank.load();
    EXPECT_TRUE(rank.holds(1));
    rank.fill(3);
    rank.begin(3);
    EXPECT_EQ(error_of(rank.saves->wait()), "");
  });
}

TEST_F(BackgroundSaves, run_one_at_a_time) {
  on_ranks(1, [](Rank& rank) {
    rank.fill(1);
    rank.begin(1);
    EXPECT_THROW(rank.begin(2), Error);
    rank.saves->wait();
    rank.begin(2);
    rank.saves->wait();
  });
}

// A rank that has not entered the collective of the other ranks is reported for a stall.
TEST_F(BackgroundSaves, keep_the_other_ranks_in_a_collective_while_one_hangs) {
  std::array<CollectiveRing*, 3> rings{};
  on_ranks(3, [&](Rank& rank) {
    const auto me = static_cast<std::size_t>(rank.world().rank());
    rings[me] = rank.world().ring();
    rank.world().exchange("");
    const auto waits = [&](std::size_t other) { return rings[other]->activity().inside; };
    rank.fill(1);
    rank.begin(1, [&, hangs = me == 1] {
      while (hangs && !(waits(0) && waits(2)))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_TRUE(!hangs || !waits(1));
    });
    EXPECT_EQ(error_of(rank.saves->wait()), "");
  });
}

}  // namespace lockstep::testing::background_save_test

// What machines have of each other's files, and what a lost one takes with it.
#include "checkpoint/partners.h"

#include <set>

#include "checkpoint/copies.h"
#include "dist/thread_world.h"
#include "tests/files.h"
#include "tests/testing.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kMachines = 3, kRanks = 6;
constexpr std::int64_t kOfARank = 300'000;  // elements: more than what is sent at once

// Of those that were not copied yet.
std::optional<std::int64_t> newest(const CheckpointCopies& copies) {
  for (const auto& found : copies.found())
    if (!found.was_copied) return found.step;
  return std::nullopt;
}

// Rank r is on machine r % 3.
class PartnersTest : public ::testing::Test {
 protected:
  struct Rank {
    Rank(const PartnersTest& test, World& of_all)
        : world(of_all),
          machine({.ranks = {of_all.rank() % kMachines, of_all.rank() % kMachines + kMachines},
                   .one_file = test.one_file_,
                   .own_directory = true,
                   .partners = true}),
          local(test.local(machine.ranks.front())),
          state({{.name = "w",
                  .whole = Shape{kRanks * kOfARank},
                  .split = unsplit(Shape{kRanks * kOfARank}),
                  .piece = {0, of_all.rank() * kOfARank, (of_all.rank() + 1) * kOfARank},
                  .local = bench.poisoned({kOfARank}, DType::fp32)}}),
          saves(local, state, {.last = 2}, &world, machine),
          loads(test.shared(), state, {}, &world),
          copies(world, local, test.shared(), machine.ranks) {}
    void save(std::int64_t step) {
      for (std::int64_t i = 0; i < kOfARank; ++i)
        Bench::set(state[0].local, i, value(step, i));
      saves.save(step, Json(step));
    }
    void expect(std::int64_t step) {
      for (std::int64_t i = 0; i < kOfARank; ++i)
        Bench::set(state[0].local, i, -1);
      EXPECT_EQ(loads.load_newest([](const Json&) {})->as_integer(), step);
      for (std::int64_t i = 0; i < kOfARank; ++i)
        ASSERT_EQ(get(state[0].local, i), value(step, i)) << i;
    }
    double value(std::int64_t step, std::int64_t i) const {
      return static_cast<double>((step * kRanks + world.rank()) * kOfARank + i);
    }
    World& world;
    MachineRanks machine;
    fs::path local;
    Bench bench;
    std::vector<StateSlice> state;
    Checkpointer saves, loads;
    CheckpointCopies copies;
  };
  void on_ranks(const std::function<void(Rank&)>& body) const {
    run_thread_ranks(kRanks, [&](World& world) {
      Rank rank(*this, world);
      body(rank);
    });
  }
  // What save() throws on all.
  std::string refused(std::int64_t step) const {
    std::string said;
    on_ranks([&](Rank& rank) {
      try {
        rank.save(step);
        ADD_FAILURE() << "saved";
      } catch (const DataError& error) {
        if (rank.world.rank() == kRanks - 1) said = error.what();
      }
    });
    return said;
  }
  virtual fs::path local(int machine) const { return directory_ / str("machine_", machine); }
  fs::path shared() const { return directory_ / "shared"; }
  std::set<std::string> names(int machine, std::int64_t step) const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(checkpoint_path(local(machine), step)))
      all.insert(entry.path().filename());
    return all;
  }

  TemporaryDirectory directory_{fast_directory()};
  bool one_file_ = false;
};

TEST_F(PartnersTest, each_machine_has_the_files_of_the_one_before_it) {
  on_ranks([](Rank& rank) { rank.save(3); });
  EXPECT_EQ(names(0, 3), (std::set<std::string>{"manifest.json", "rank-00000.safetensors",
                                                "rank-00003.safetensors", "rank-00002.safetensors",
                                                "rank-00005.safetensors"}));
  EXPECT_EQ(names(2, 3), (std::set<std::string>{"manifest.json", "rank-00002.safetensors",
                                                "rank-00005.safetensors", "rank-00001.safetensors",
                                                "rank-00004.safetensors"}));
  for (int machine = 0; machine < kMachines; ++machine)
    verify_checkpoint(checkpoint_path(local(machine), 3), Depth::contents, false, Held::some);
}

TEST_F(PartnersTest, any_one_machine_may_be_lost_but_not_two) {
  for (const bool one_file : {false, true})
    for (int lost = 0; lost < kMachines; ++lost) {
      one_file_ = one_file;
      on_ranks([](Rank& rank) {
        rank.save(3);
        rank.save(5);
      });
      fs::remove_all(local(lost));
      on_ranks([](Rank& rank) {
        ASSERT_EQ(newest(rank.copies), 5);
        rank.copies.copy(5, {}, {});
        rank.expect(5);
      });
      fs::remove(checkpoint_path(local((lost + 1) % kMachines), 3) / "manifest.json");
      on_ranks([](Rank& rank) { EXPECT_EQ(newest(rank.copies), std::nullopt); });
      for (int machine = 0; machine < kMachines; ++machine)
        fs::remove_all(local(machine));
      fs::remove_all(shared());
    }
}

TEST_F(PartnersTest, of_a_file_that_is_damaged_here_the_partners_is_taken) {
  on_ranks([](Rank& rank) { rank.save(3); });
  for (const int machine : {0, 1})
    flip(checkpoint_path(local(machine), 3) / str("rank-0000", machine, ".safetensors"), 999'999,
         2);
  on_ranks([](Rank& rank) {
    rank.copies.copy(3, {}, {});
    rank.expect(3);
  });
  flip(checkpoint_path(local(1), 3) / "rank-00000.safetensors", 999'999, 2);  // now nowhere whole
  on_ranks([](Rank& rank) {
    EXPECT_THROW(rank.copies.copy(3, {}, {}), DataError);
    rank.expect(3);  // what was there stays
  });
}

TEST_F(PartnersTest, a_lost_machine_joins_again) {
  on_ranks([](Rank& rank) { rank.save(3); });
  fs::remove_all(local(1));
  on_ranks([](Rank& rank) { rank.save(4); });
  EXPECT_EQ(names(1, 4).size(), 5u);
  EXPECT_EQ(names(2, 4).size(), 5u);
}

// As a network card or its driver might.
TEST_F(PartnersTest, what_comes_damaged_is_refused_on_all) {
  on_ranks([&](Rank& rank) {
    rank.save(3);
    const auto path = checkpoint_path(rank.local, 3);
    const auto manifest = slurp(path / "manifest.json");
    if (rank.world.rank() == 1) flip(path / "rank-00004.safetensors", 1'000'000, 2);
    rank.world.exchange("");
    const AllRanks all(&rank.world, "test");
    const Partners partners(all, rank.machine);
    const auto said = message_of<DataError>([&] { partners.copy(all, manifest, path, [] {}); });
    expect_contains(said, "rank 2: ");
    expect_contains(said, "rank-00004.safetensors: at byte ");
    expect_contains(said, ": w came damaged from rank 1");
  });
}

// The cause is said, not that the connection to it broke.
TEST_F(PartnersTest, a_full_disk_of_another_machine_is_said_and_the_older_checkpoint_stays) {
  const SmallDisk disk(std::int64_t{7} << 20);  // own files twice, or those of two machines
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  fs::create_symlink(disk.path(), local(1));
  on_ranks([](Rank& rank) { rank.save(3); });
  expect_contains(refused(4), "No space left on device");
  for (int machine = 0; machine < kMachines; ++machine)
    EXPECT_EQ(checkpoint_steps(local(machine)), std::vector<std::int64_t>{3});
}

TEST(PartnersAlone, one_machine_has_no_partner) {
  const TemporaryDirectory directory;
  run_thread_ranks(2, [&](World& world) {
    const MachineRanks machine{.ranks = {0, 1}, .own_directory = true, .partners = true};
    Bench bench;
    const auto w = bench.poisoned({10}, DType::fp32);
    auto slice = whole_slice("w", w);
    slice.owned = world.rank() == 0;
    Checkpointer(directory.path(), {slice}, {}, &world, machine).save(1, Json(1));
  });
  EXPECT_NO_THROW(verify_checkpoint(checkpoint_path(directory.path(), 1), Depth::contents));
}

}  // namespace
}  // namespace lockstep::testing

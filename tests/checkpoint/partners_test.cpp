// What machines have of each other's files, and what a lost one takes with it.
#include "checkpoint/partners.h"

#include "tests/checkpoint/machines.h"

namespace lockstep::testing::partners_test {

namespace fs = std::filesystem;

constexpr int kMachines = 3;

// Rank r is on machine r % 3; what each has is more than what is sent at once.
class PartnersTest : public Machines {
 protected:
  PartnersTest()
      : Machines({.machines = kMachines, .ranks = 6, .of_a_rank = 300'000, .partners = true}) {}
  Names names_on(int machine, std::int64_t step) const {
    return names(checkpoint_path(local(machine), step));
  }
};

TEST_F(PartnersTest, each_machine_has_the_files_of_the_one_before_it) {
  on_ranks([](Rank& rank) { rank.save(3); });
  EXPECT_EQ(names_on(0, 3),
            (Names{"manifest.json", "rank-00000.safetensors", "rank-00003.safetensors",
                   "rank-00002.safetensors", "rank-00005.safetensors"}));
  EXPECT_EQ(names_on(2, 3),
            (Names{"manifest.json", "rank-00002.safetensors", "rank-00005.safetensors",
                   "rank-00001.safetensors", "rank-00004.safetensors"}));
  for (int machine = 0; machine < kMachines; ++machine)
    verify_checkpoint(checkpoint_path(local(machine), 3), Depth::contents, false, Held::some);
}

TEST_F(PartnersTest, any_one_machine_may_be_lost_but_not_two) {
  for (const bool one_file : {false, true})
    for (int lost = 0; lost < kMachines; ++lost) {
      form_.one_file = one_file;
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
  EXPECT_EQ(names_on(1, 4).size(), 5u);
  EXPECT_EQ(names_on(2, 4).size(), 5u);
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

// The address that machine 2 gives is nobody's, so machine 1 cannot reach it.
TEST_F(PartnersTest, a_machine_that_is_not_reached_is_an_error_on_all_and_not_a_wait) {
  class Elsewhere final : public WorldOver {
   public:
    using WorldOver::WorldOver;
    std::vector<std::string> addresses() const override {
      return rank() == 2 ? std::vector<std::string>{"255.255.255.255"} : WorldOver::addresses();
    }
  };
  on_ranks([&](Rank& rank) {
    rank.save(3);
    Elsewhere world(rank.world);
    const AllRanks all(&world, "test");
    const Partners partners(all, rank.machine, Milliseconds(2000));
    const auto path = checkpoint_path(rank.local, 3);
    const auto said = message_of<DataError>(
        [&] { partners.copy(all, slurp(path / "manifest.json"), path, [] {}); });
    expect_contains(said, "no copy on another machine: rank 1: ");
    expect_contains(said, "255.255.255.255");
  });
}

TEST_F(PartnersTest, what_a_machine_cannot_send_is_said_and_not_that_it_did_not_come) {
  on_ranks([&](Rank& rank) {
    rank.save(3);
    const auto path = checkpoint_path(rank.local, 3);
    if (rank.world.rank() == 1) fs::resize_file(path / "rank-00004.safetensors", 700'000);
    rank.world.exchange("");
    const AllRanks all(&rank.world, "test");
    const Partners partners(all, rank.machine);
    const auto said = message_of<DataError>(
        [&] { partners.copy(all, slurp(path / "manifest.json"), path, [] {}); });
    expect_contains(said, "rank 1: ");
    expect_contains(said, "expected a file of ");
  });
}

// The cause is said, not that the connection to it broke.
TEST_F(PartnersTest, a_full_disk_of_another_machine_is_said_and_the_older_checkpoint_stays) {
  const SmallDisk disk(std::int64_t{7} << 20);  // own files twice, or those of two machines
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  fs::create_symlink(disk.path(), local(1));
  on_ranks([](Rank& rank) { rank.save(3); });
  expect_contains(refused([](Rank& rank) { rank.save(4); }), "No space left on device");
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

}  // namespace lockstep::testing::partners_test

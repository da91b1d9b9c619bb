// Copies of each host's files on its partner, and the effect of a lost host.
#include "checkpoint/partners.h"

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>

#include "tests/checkpoint/machines.h"
#include "tests/wording.h"

namespace lockstep::testing::partners_test {

namespace fs = std::filesystem;

constexpr int kMachines = 3;

// Rank r is on host r % 3. Each rank has more data than one piece of a transfer.
class PartnersTest : public Machines {
 protected:
  PartnersTest()
      : Machines({.machines = kMachines, .ranks = 6, .of_a_rank = 300'000, .partners = true}) {}
  // Rank 1 calls `harm` on its files; then all ranks copy step 3 to their partners and throw the
  // same error.
  template <class Harm, class Copy>
  std::string refused_copy(const Harm& harm, const Copy& copy) const {
    std::mutex mutex;
    std::set<std::string> said;
    on_ranks([&](Rank& rank) {
      rank.save(3);
      const auto path = checkpoint_path(rank.local, 3);
      const auto manifest = slurp(path / "manifest.json");
      if (rank.world.rank() == 1) harm(path);
      rank.world.exchange("");
      auto text = message_of<DataError>([&] { copy(rank, manifest, path); });
      const std::lock_guard lock(mutex);
      said.insert(std::move(text));
    });
    EXPECT_EQ(said.size(), 1u) << "ranks throw different errors";
    return said.empty() ? "" : *said.begin();
  }
  static void copy_to_partners(Rank& rank, const std::string& manifest, const fs::path& path) {
    const AllRanks all(&rank.world, "test");
    Partners(all, rank.machine).copy(all, manifest, path, [] {});
  }
  Names names_on(int machine, std::int64_t step) const {
    return names(checkpoint_path(local(machine), step));
  }
};

TEST_F(PartnersTest, each_host_of_three_has_the_files_of_the_previous_host) {
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

TEST_F(PartnersTest, one_host_may_be_lost_but_not_two) {
  for (const bool one_file : {false, true})
    for (int lost = 0; lost < kMachines; ++lost) {
      form_.one_file = one_file;
      on_ranks([](Rank& rank) {
        rank.save(3);
        rank.save(5);
      });
      fs::remove_all(local(lost));
      on_ranks([](Rank& rank) {
        ASSERT_EQ(newest(rank), 5);
        rank.copies.copy(5, {}, {});
        rank.expect(5);
      });
      fs::remove(checkpoint_path(local((lost + 1) % kMachines), 3) / "manifest.json");
      on_ranks([](Rank& rank) { EXPECT_EQ(newest(rank), std::nullopt); });
      for (int machine = 0; machine < kMachines; ++machine)
        fs::remove_all(local(machine));
      fs::remove_all(shared());
    }
}

TEST(Partners, are_another_half_of_the_job) {
  for (std::size_t hosts = 2; hosts < 130; ++hosts) {
    std::set<std::size_t> partners;
    for (std::size_t host = 0; host < hosts; ++host) {
      const auto partner = partner_of(host, hosts);
      partners.insert(partner);
      const auto apart = (partner + hosts - host) % hosts;
      EXPECT_GE(std::min(apart, hosts - apart), hosts / 2) << host << " of " << hosts;
    }
    EXPECT_EQ(partners.size(), hosts);
  }
}

TEST_F(PartnersTest, the_hosts_of_a_rack_may_be_lost_together) {
  form_.machines = 4;
  form_.ranks = 4;
  on_ranks([](Rank& rank) { rank.save(3); });
  for (const int lost : {2, 3})
    fs::remove_all(local(lost));
  on_ranks([](Rank& rank) {
    ASSERT_EQ(newest(rank), 3);
    rank.copies.copy(3, {}, {});
    rank.expect(3);
  });
}

TEST_F(PartnersTest, a_damaged_file_is_replaced_by_the_partners_copy) {
  on_ranks([](Rank& rank) { rank.save(3); });
  for (const int machine : {0, 1})
    flip(checkpoint_path(local(machine), 3) / str("rank-0000", machine, ".safetensors"), 999'999,
         2);
  on_ranks([](Rank& rank) {
    rank.copies.copy(3, {}, {});
    rank.expect(3);
  });
  flip(checkpoint_path(local(1), 3) / "rank-00000.safetensors", 999'999, 2);  // damages all copies
  on_ranks([](Rank& rank) {
    EXPECT_THROW(rank.copies.copy(3, {}, {}), DataError);
    rank.expect(3);  // the saved state stays
  });
}

TEST_F(PartnersTest, a_lost_host_rejoins) {
  on_ranks([](Rank& rank) { rank.save(3); });
  fs::remove_all(local(1));
  on_ranks([](Rank& rank) { rank.save(4); });
  EXPECT_EQ(names_on(1, 4).size(), 5u);
  EXPECT_EQ(names_on(2, 4).size(), 5u);
}

// A NIC or its driver may cause such damage.
TEST_F(PartnersTest, a_damaged_or_unsendable_file_is_an_error_on_all_ranks) {
  const auto damaged = refused_copy(
      [](const fs::path& path) { flip(path / "rank-00004.safetensors", 1'000'000, 2); },
      copy_to_partners);
  expect_contains(damaged, "rank 2: ");
  expect_wording("checkpoint/partners", "a file that comes damaged", damaged);
  const auto shorter = refused_copy(
      [](const fs::path& path) { fs::resize_file(path / "rank-00004.safetensors", 700'000); },
      copy_to_partners);
  expect_contains(shorter, "rank 1: ");
  expect_wording("checkpoint/partners", "a file that cannot be sent", shorter);
}

// Host 2 gives an address that does not exist, so host 1 cannot reach it.
TEST_F(PartnersTest, an_unreachable_host_is_an_error_on_all_ranks_without_a_hang) {
  class Elsewhere final : public WorldOver {
   public:
    using WorldOver::WorldOver;
    std::vector<std::string> addresses() const override {
      return rank() == 2 ? std::vector<std::string>{"255.255.255.255"} : WorldOver::addresses();
    }
  };
  const auto said = refused_copy(
      [](const fs::path&) {},
      [](Rank& rank, const std::string& manifest, const fs::path& path) {
        Elsewhere world(rank.world);
        const AllRanks all(&world, "test");
        Partners(all, rank.machine, Milliseconds(2000)).copy(all, manifest, path, [] {});
      });
  expect_contains(said, "rank 1: ");
  expect_contains(said, "255.255.255.255");
}

// The error has the cause, not the broken connection.
TEST_F(PartnersTest, a_full_disk_on_another_host_is_reported_and_the_older_checkpoint_stays) {
  const SmallDisk disk(std::int64_t{7} << 20);  // own files twice, or files of two hosts
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  fs::create_symlink(disk.path(), local(1));
  on_ranks([](Rank& rank) { rank.save(3); });
  const auto said = refused([](Rank& rank) { rank.save(4); });
  expect_contains(said, "machine_1/step-00000004.tmp");
  expect_contains(said, std::strerror(ENOSPC));
  for (int machine = 0; machine < kMachines; ++machine)
    EXPECT_EQ(checkpoint_steps(local(machine)), std::vector<std::int64_t>{3});
}

TEST(PartnersAlone, a_single_host_has_no_partner) {
  const TemporaryDirectory directory;
  run_thread_ranks(2, [&](World& world) {
    const HostRanks machine{.ranks = {0, 1}, .own_directory = true, .partners = true};
    Bench bench;
    const auto w = bench.poisoned({10}, DType::fp32);
    auto slice = whole_slice("w", w);
    slice.owned = world.rank() == 0;
    Checkpointer(directory.path(), {slice}, {}, &world, machine).save(1, Json(1));
  });
  EXPECT_NO_THROW(verify_checkpoint(checkpoint_path(directory.path(), 1), Depth::contents));
}

}  // namespace lockstep::testing::partners_test

// Checkpoints in a directory on each host, and their copies to the archive.
#include "checkpoint/checkpoint_copier.h"

#include <set>

#include "checkpoint/background_copies.h"
#include "tests/checkpoint/machines.h"
#include "tests/wording.h"

namespace lockstep::testing::copies_test {

namespace fs = std::filesystem;

// Ranks 0 and 2 are on host 0, ranks 1 and 3 on host 1.
class CheckpointCopierTest : public Machines {
 protected:
  CheckpointCopierTest() : Machines({.machines = 2, .ranks = 4, .of_a_rank = 1000}) {}
  std::string refused_copy(std::int64_t step) const {
    return refused([step](Rank& rank) { rank.copies.copy(step, {}, {}); });
  }
  fs::path archive() const {
    fs::create_directories(directory_ / "archive");
    return directory_ / "archive";
  }
  CheckpointCopier copies_to_archive(World& world) const {
    return CheckpointCopier(world, shared(), directory_ / "archive", {});
  }
  // Copies to the archive, only of milestones.
  std::unique_ptr<BackgroundCopies> milestones(World& world) const {
    std::vector<BackgroundCopies::Hop> hops;
    hops.push_back({.copies = copies_to_archive(world), .milestones = 2, .milestones_alone = true});
    return std::make_unique<BackgroundCopies>(world, std::move(hops));
  }
  // A run that keeps one checkpoint, and every second one until the archive has it.
  void save_shared(Rank& rank, std::int64_t step, const Json& about) const {
    const Retention retention{.last = 1, .every = 2, .copied_to = directory_ / "archive"};
    Checkpointer(shared(), rank.state, retention, &rank.world).save(step, about);
  }
};

TEST_F(CheckpointCopierTest, hosts_hold_their_own_files_and_a_manifest_of_all_files) {
  on_ranks([](Rank& rank) { rank.save(3); });
  EXPECT_EQ(names(checkpoint_path(local(0), 3)),
            (Names{"manifest.json", "rank-00000.safetensors", "rank-00002.safetensors"}));
  EXPECT_EQ(names(checkpoint_path(local(1), 3)),
            (Names{"manifest.json", "rank-00001.safetensors", "rank-00003.safetensors"}));
  EXPECT_NO_THROW(
      verify_checkpoint(checkpoint_path(local(1), 3), Depth::contents, false, Held::some));
  EXPECT_THROW(verify_checkpoint(checkpoint_path(local(1), 3), Depth::contents), DataError);
}

TEST_F(CheckpointCopierTest, equal_a_checkpoint_that_was_saved_at_the_destination) {
  for (const bool one_file : {false, true}) {
    form_.one_file = one_file;
    on_ranks([](Rank& rank) {
      EXPECT_EQ(newest(rank), std::nullopt);
      rank.save(3);
      rank.save(5);
      EXPECT_EQ(newest(rank), 5);
      rank.copies.copy(5, {}, {});
      EXPECT_EQ(newest(rank), 3);  // 5 was copied, so a person deleted the copy
      rank.expect(5);
    });
    EXPECT_EQ(names(shared()), (Names{"step-00000005"}));
    EXPECT_EQ(slurp(checkpoint_path(shared(), 5) / "manifest.json"),
              slurp(checkpoint_path(local(0), 5) / "manifest.json"));
    for (const auto& path : {shared(), local(0), local(1)})
      fs::remove_all(path);
  }
}

TEST_F(CheckpointCopierTest,
       are_rejected_if_a_host_is_missing_and_an_older_complete_one_is_the_newest) {
  on_ranks([](Rank& rank) {
    rank.save(3);
    rank.save(5);
  });
  fs::remove_all(checkpoint_path(local(1), 5));
  on_ranks([](Rank& rank) { EXPECT_EQ(newest(rank), 3); });
  expect_wording("checkpoint/checkpoint_copier", "a machine without its files", refused_copy(5));
  EXPECT_EQ(names(shared()), Names());
}

TEST_F(CheckpointCopierTest, are_rejected_for_damaged_files_and_leave_no_files) {
  on_ranks([](Rank& rank) {
    rank.save(3);
    rank.copies.copy(3, {}, {});
    rank.save(5);
  });
  const auto file = checkpoint_path(local(1), 5) / "rank-00003.safetensors";
  for (const std::size_t at :
       {std::size_t{20}, static_cast<std::size_t>(fs::file_size(file)) - 1}) {
    flip(file, at, 2);
    expect_contains(refused_copy(5), "rank-00003.safetensors: at byte ");
    EXPECT_EQ(names(shared()), (Names{"step-00000003"}));
    flip(file, at, 2);
  }
  on_ranks([](Rank& rank) {
    rank.expect(3);
    rank.copies.copy(5, {.last = 1}, {});
    rank.expect(5);
  });
  EXPECT_EQ(names(shared()), (Names{"step-00000005"}));
}

// A host was absent while the others saved the step again.
TEST_F(CheckpointCopierTest, do_not_mix_two_saves_of_a_step) {
  on_ranks([](Rank& rank) { rank.save(5); });
  const auto away = directory_ / "away";
  fs::rename(local(1), away);
  on_ranks([](Rank& rank) {
    rank.fill([](std::int64_t) { return -1; });
    rank.saves.save(5, Json("again"));
  });
  fs::remove_all(local(1));
  fs::rename(away, local(1));
  on_ranks([](Rank& rank) { EXPECT_EQ(newest(rank), std::nullopt); });
  expect_wording("checkpoint/checkpoint_copier", "a machine of another save", refused_copy(5));
}

TEST_F(CheckpointCopierTest, keep_the_newest_two_and_uncopied_checkpoints_on_a_host) {
  on_ranks([](Rank& rank) {
    for (const std::int64_t step : {1, 2, 3})
      rank.save(step, {1, step - 1});
  });
  EXPECT_EQ(names(local(1)), (Names{"step-00000001", "step-00000002", "step-00000003"}));
  on_ranks([](Rank& rank) { rank.save(4, {3}); });
  EXPECT_EQ(names(local(0)), (Names{"step-00000003", "step-00000004"}));
  EXPECT_EQ(names(local(1)), (Names{"step-00000003", "step-00000004"}));
}

// Host 1 has room for the files of a third checkpoint, but not for its manifest.
TEST_F(CheckpointCopierTest, delete_nothing_before_all_hosts_have_the_new_checkpoint) {
  constexpr std::int64_t kPage = 4096;
  SmallDisk disk(14 * kPage);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  fs::create_symlink(disk.path(), local(1));
  on_ranks([](Rank& rank) {
    rank.save(3);
    rank.save(5);
    for (const std::int64_t step : {7, 8})
      EXPECT_THROW(rank.save(step), DataError);
    EXPECT_EQ(newest(rank), 5);
  });
  EXPECT_TRUE(names(local(0)).contains("step-00000007"));  // host 0 had committed it
  disk.resize(std::int64_t{1} << 20);
  on_ranks([](Rank& rank) {
    rank.save(9);
    EXPECT_EQ(newest(rank), 9);
    rank.copies.copy(9, {}, {});
    rank.expect(9);
  });
  EXPECT_EQ(names(local(0)), (Names{"step-00000008", "step-00000009"}));
  EXPECT_EQ(names(local(1)), (Names{"step-00000005", "step-00000009"}));
}

// Host 1 has room for two checkpoints. Step 9 is left from a run that went back.
TEST_F(CheckpointCopierTest, need_room_for_two_if_the_one_before_is_kept) {
  constexpr std::int64_t kPage = 4096;
  SmallDisk disk(13 * kPage);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system needs root";
  fs::create_symlink(disk.path(), local(1));
  on_ranks([](Rank& rank) {
    rank.save(1);
    rank.save(9);
    for (const std::int64_t step : {2, 3, 4})
      rank.save(step, {step - 1});
  });
  for (const int machine : {0, 1})
    EXPECT_EQ(names(local(machine)), (Names{"step-00000003", "step-00000004"}));
}

TEST_F(CheckpointCopierTest, are_divided_among_all_ranks_between_shared_directories) {
  const auto archive = this->archive();
  on_ranks([&](Rank& rank) {
    rank.save(3);
    rank.copies.copy(3, {}, {});
    const auto there = copies_to_archive(rank.world);
    there.copy(3, {}, {});
    EXPECT_FALSE(fs::exists(checkpoint_path(shared(), 3) / kCopiedMark));
    fs::create_directories(directory_ / "back");
    const CheckpointCopier back(rank.world, archive, directory_ / "back", {});
    back.copy(3, {}, {});
  });
  verify_checkpoint(checkpoint_path(archive, 3), Depth::contents);
  verify_checkpoint(checkpoint_path(directory_ / "back", 3), Depth::contents);
}

std::vector<std::int64_t> steps_of(const std::vector<BackgroundCopies::Outcome>& outcomes) {
  std::vector<std::int64_t> steps;
  for (const auto& outcome : outcomes) {
    EXPECT_FALSE(outcome.error) << outcome.step;
    steps.push_back(outcome.to->filename() == "archive" ? -outcome.step : outcome.step);
  }
  return steps;
}

TEST_F(CheckpointCopierTest, in_the_background_include_all_milestones_and_the_newest_other_step) {
  const auto archive = this->archive();
  on_ranks([&](Rank& rank) {
    for (const std::int64_t step : {1, 2, 3, 4, 5})
      rank.save(step, {1, 2, 3, 4, 5});
    std::vector<BackgroundCopies::Hop> hops;
    hops.push_back({.copies = rank.copies, .retention = {.last = 1}, .milestones = 2});
    hops.push_back(
        {.copies = copies_to_archive(rank.world), .milestones = 2, .milestones_alone = true});
    BackgroundCopies copies(rank.world, std::move(hops));
    // Rank 0 decides the order; all five requests wait until the other ranks have them.
    rank.world.exchange("");
    for (const std::int64_t step : {1, 2, 3, 4, 5})
      copies.want(step, {});
    copies.finish();
    const auto done = steps_of(copies.poll());
    // 1 and 3 are copied only if the copy began before a newer request.
    std::vector<std::int64_t> must;
    std::copy_if(done.begin(), done.end(), std::back_inserter(must),
                 [](std::int64_t step) { return step != 1 && step != 3; });
    EXPECT_EQ(must, (std::vector<std::int64_t>{2, -2, 4, -4, 5}));
    EXPECT_EQ(copies.pending(), std::vector<std::int64_t>{});
  });
  EXPECT_EQ(names(shared()), (Names{"step-00000005"}));
  EXPECT_EQ(names(archive), (Names{"step-00000002", "step-00000004"}));
}

// If the archive is absent or the job ends early, they are copied later, and stay until then.
TEST_F(CheckpointCopierTest, include_milestones_left_over_from_an_earlier_start) {
  const auto archive = directory_ / "archive";
  const auto copy_on = [&](World& world, const std::vector<std::int64_t>& steps) {
    const auto copies = milestones(world);
    for (const auto step : steps)
      copies->want(step, {});
    copies->finish();
    std::vector<std::int64_t> copied, failed;
    for (const auto& outcome : copies->poll())
      (outcome.error ? failed : copied).push_back(outcome.step);
    return std::pair(copied, failed);
  };
  using Steps = std::vector<std::int64_t>;
  const auto save = [&](Rank& rank, std::int64_t step) { save_shared(rank, step, Json(step)); };
  spit(archive, "not a directory");
  on_ranks([&](Rank& rank) {
    for (const std::int64_t step : {2, 4, 5})
      save(rank, step);
    const auto failed = copy_on(rank.world, {2, 4}).second;  // possibly 2 once more after 4
    EXPECT_EQ(std::set<std::int64_t>(failed.begin(), failed.end()), (std::set<std::int64_t>{2, 4}));
  });
  EXPECT_EQ(names(shared()), (Names{"step-00000002", "step-00000004", "step-00000005"}));
  fs::remove(archive);
  fs::create_directory(archive);
  on_ranks([&](Rank& rank) {
    save(rank, 6);
    EXPECT_EQ(copy_on(rank.world, {6}), std::pair(Steps{6, 2, 4}, Steps{}));
    save(rank, 7);
    EXPECT_EQ(copy_on(rank.world, {7}), std::pair(Steps{}, Steps{}));
  });
  EXPECT_EQ(names(archive), (Names{"step-00000002", "step-00000004", "step-00000006"}));
  EXPECT_EQ(names(shared()), (Names{"step-00000007"}));
}

// The run reaches a milestone again after a resume: the archive's copy has another history.
TEST_F(CheckpointCopierTest, from_an_older_history_do_not_count) {
  const auto archive = this->archive();
  on_ranks([&](Rank& rank) {
    rank.fill([](std::int64_t) { return 7; });
    save_shared(rank, 2, Json("before"));
    copies_to_archive(rank.world).copy(2, {}, {});
    save_shared(rank, 2, Json("again"));
    save_shared(rank, 3, Json("again"));
  });
  EXPECT_EQ(names(shared()), (Names{"step-00000002", "step-00000002.replaced-1", "step-00000003"}));
  on_ranks([&](Rank& rank) {
    const auto copies = milestones(rank.world);
    copies->want(3, {});
    copies->finish();
    EXPECT_EQ(copies->poll().size(), 1u);
  });
  EXPECT_EQ(read_manifest(checkpoint_path(archive, 2)).about.as_string(), "again");
}

// Rank 1 requests a step only after it was copied.
TEST_F(CheckpointCopierTest, end_if_a_rank_gets_the_request_late) {
  on_ranks([&](Rank& rank) {
    rank.save(2);
    std::vector<BackgroundCopies::Hop> hops;
    hops.push_back({.copies = rank.copies, .milestones = 1});
    BackgroundCopies copies(rank.world, std::move(hops));
    if (rank.world.rank() != 1) copies.want(2, {});
    while (copies.poll().empty())
      std::this_thread::yield();
    if (rank.world.rank() == 1) copies.want(2, {});
    EXPECT_EQ(copies.pending(), std::vector<std::int64_t>{});
    copies.finish();
  });
}

// The broadcast fails as if rank 0 had died.
TEST(BackgroundCopiesAlone, end_with_an_error_if_ranks_lose_contact) {
  class Deaf final : public WorldOver {
   public:
    using WorldOver::WorldOver;
    std::string broadcast(const std::string&, const std::string&) override {
      throw TransientError("rank 0 is gone");
    }
  };
  const TemporaryDirectory directory;
  LoneWorld alone;
  Deaf deaf(alone);
  std::vector<BackgroundCopies::Hop> hops;
  hops.push_back({.copies = CheckpointCopier(deaf, directory / "from", directory / "to", {})});
  BackgroundCopies copies(deaf, std::move(hops));
  copies.want(1, {});
  copies.finish();
  EXPECT_EQ(message_of<TransientError>([&] { copies.poll(); }), "rank 0 is gone");
}

TEST_F(CheckpointCopierTest, report_a_failure_on_all_ranks_and_continue_with_the_next) {
  on_ranks([&](Rank& rank) {
    rank.save(1);
    rank.save(2);
    rank.world.exchange("");
    if (rank.world.rank() == 1)
      fs::remove(checkpoint_path(rank.local, 1) / "rank-00001.safetensors");
    rank.world.exchange("");
    std::vector<BackgroundCopies::Hop> hops;
    hops.push_back({.copies = rank.copies, .milestones = 1});
    BackgroundCopies copies(rank.world, std::move(hops));
    copies.want(1, {});
    auto outcomes = copies.poll();
    for (; outcomes.empty(); outcomes = copies.poll())
      std::this_thread::yield();
    ASSERT_EQ(outcomes.size(), 1u);
    EXPECT_THROW(std::rethrow_exception(outcomes[0].error), DataError);
    rank.world.exchange("");  // all ranks have the outcome
    copies.want(2, {});
    copies.finish();
    outcomes = copies.poll();
    ASSERT_EQ(outcomes.size(), 2u);  // after it the first is tried once more
    EXPECT_EQ(outcomes[0].step, 2);
    EXPECT_FALSE(outcomes[0].error);
    EXPECT_EQ(outcomes[1].step, 1);
    EXPECT_THROW(std::rethrow_exception(outcomes[1].error), DataError);
    rank.expect(2);
  });
}

}  // namespace lockstep::testing::copies_test

// Checkpoints that are loaded from the directories of the hosts. Ranks are threads, which fetch
// ranges over TCP.
#include "checkpoint/host_restore.h"

#include <atomic>
#include <thread>

#include "checkpoint/range_transfer.h"
#include "core/hash.h"
#include "tests/checkpoint/machines.h"
#include "tests/wording.h"

namespace lockstep::testing::host_restore_test {

namespace fs = std::filesystem;

constexpr auto kAny = [](const Json&) {};

// Rank r is on host r % 4. Each rank has more data than one piece of a transfer. Hosts 0 and 2 are
// partners, and 1 and 3.
class HostRestoreTest : public Machines {
 protected:
  HostRestoreTest()
      : Machines({.machines = 4, .ranks = 8, .of_a_rank = 100'001, .partners = true}) {}

  // All ranks load the newest checkpoint of the hosts.
  static std::int64_t load(Rank& rank) {
    rank.fill([](std::int64_t) { return -1; });
    const auto all = rank.restores.find({});
    return rank.restores.load(all.at(0), rank.state, kAny).as_integer();
  }
  void expect_loaded(std::int64_t step) const {
    on_ranks([&](Rank& rank) {
      EXPECT_EQ(load(rank), step);
      rank.expect_values(step);
    });
    EXPECT_EQ(names(shared()), Names()) << "the shared directory was used";
  }
  fs::path file(int machine, int rank, std::int64_t step = 3) const {
    return checkpoint_path(local(machine), step) / str("rank-0000", rank, ".safetensors");
  }
};

TEST_F(HostRestoreTest, ranks_read_their_own_hosts_files) {
  on_ranks([](Rank& rank) {
    rank.save(2);
    rank.save(3);
  });
  expect_loaded(3);
}

TEST_F(HostRestoreTest, lost_hosts_get_their_files_from_partners) {
  for (const bool one_file : {false, true}) {
    form_.one_file = one_file;
    on_ranks([](Rank& rank) { rank.save(3); });
    for (const int lost : {2, 3})  // neighbours
      fs::remove_all(local(lost));
    expect_loaded(3);
    for (int machine = 0; machine < form_.machines; ++machine)
      fs::remove_all(local(machine));
  }
}

// The next save completes the files of a spare host and of the hosts beside it.
TEST_F(HostRestoreTest, a_spare_host_has_its_files_again_after_the_next_save) {
  on_ranks([](Rank& rank) { rank.save(3); });
  fs::remove_all(local(1));
  on_ranks([](Rank& rank) {
    EXPECT_EQ(load(rank), 3);
    rank.save(4);
  });
  for (int machine = 0; machine < form_.machines; ++machine)
    EXPECT_EQ(names(checkpoint_path(local(machine), 4)).size(), 5U);
  fs::remove_all(local(3));
  expect_loaded(4);
}

TEST_F(HostRestoreTest, a_damaged_file_is_replaced_by_the_partners_copy) {
  on_ranks([](Rank& rank) { rank.save(3); });
  flip(file(1, 1), 200'000, 1);                                  // a rank's own file
  fs::remove_all(local(0));                                      // so rank 0 reads from host 2
  fs::resize_file(file(3, 7), fs::file_size(file(3, 7)) - 100);  // a file of the wrong size
  expect_loaded(3);
  // The last byte of the last piece, in a copy that another host reads.
  flip(file(2, 0), fs::file_size(file(2, 0)) - 1, 1);
  std::string said;
  on_ranks([&](Rank& rank) {
    const auto text = message_of<DataError>([&] { load(rank); });
    if (rank.world.rank() == 5) said = text;
  });
  expect_wording("checkpoint/host_restore", "no copy is left", said);
}

TEST_F(HostRestoreTest, a_file_without_a_copy_comes_from_the_shared_directory) {
  on_ranks([](Rank& rank) {
    rank.save(3);
    rank.copies.copy(3, {}, {});
  });
  for (const int lost : {1, 3})
    fs::remove_all(local(lost));
  on_ranks([](Rank& rank) {
    EXPECT_TRUE(rank.restores.find({}).empty());
    const std::vector<std::int64_t> steps{3};
    const auto all = rank.restores.find(steps);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_TRUE(all[0].is_shared);
    rank.fill([](std::int64_t) { return -1; });
    EXPECT_EQ(rank.restores.load(all[0], rank.state, kAny).as_integer(), 3);
    rank.expect_values(3);
  });
}

// The save of another host is of the same step, but of another history.
TEST_F(HostRestoreTest, two_saves_of_a_step_are_not_mixed) {
  on_ranks([](Rank& rank) {
    rank.save(2);
    rank.save(3);
  });
  for (const int machine : {1, 3})
    fs::rename(local(machine), directory_ / str("away_", machine));
  on_ranks([](Rank& rank) {
    rank.fill([](std::int64_t) { return -1; });
    rank.saves.save(3, Json("again"));
  });
  for (const int machine : {1, 3}) {
    fs::remove_all(local(machine));
    fs::rename(directory_ / str("away_", machine), local(machine));
  }
  expect_loaded(2);
}

// Four ranks load what eight saved, and sixteen too; the ranges of a slice are then damaged.
TEST_F(HostRestoreTest, another_layout_reads_parts_of_slices) {
  on_ranks([](Rank& rank) { rank.save(3); });
  const auto whole = form_.of_a_rank * form_.ranks;
  fs::remove_all(local(2));
  flip(file(0, 4), 300'000, 1);  // the only copy left of it is damaged in host 0
  const auto load_on = [&](int ranks) {
    std::atomic<int> loaded = 0;
    run_thread_ranks(ranks, [&](World& world) {
      const auto begin = whole * world.rank() / ranks, end = whole * (world.rank() + 1) / ranks;
      Bench memory{.host_bytes = 4 * whole + 4096};
      StateSlice slice{.name = "w",
                       .whole = Shape{whole},
                       .split = unsplit(Shape{whole}),
                       .piece = {0, begin, end},
                       .local = memory.poisoned({end - begin}, DType::fp32)};
      HostRanks machine{.own_directory = true};
      for (int r = world.rank() % 4; r < ranks; r += 4)
        machine.ranks.push_back(r);
      HostRestore restores(world, local(world.rank() % 4), shared(), machine);
      const auto all = restores.find({});
      restores.load(all.at(0), {&slice, 1}, kAny);
      for (std::int64_t i = begin; i < end; ++i)
        ASSERT_EQ(get(slice.local, i - begin), static_cast<double>(3 * whole + i));
      ++loaded;
    });
    return loaded.load();
  };
  EXPECT_THROW(load_on(5), DataError);
  flip(file(0, 4), 300'000, 1);
  for (const int ranks : {4, 5, 16})
    EXPECT_EQ(load_on(ranks), ranks);
}

// A peer that is gone: its address leads nowhere. Other copies are used.
TEST_F(HostRestoreTest, a_lost_host_is_replaced_by_another_one_without_a_hang) {
  class Elsewhere final : public WorldOver {
   public:
    using WorldOver::WorldOver;
    std::vector<std::string> addresses() const override {
      return rank() == 3 ? std::vector<std::string>{"255.255.255.255"} : WorldOver::addresses();
    }
  };
  on_ranks([](Rank& rank) {
    rank.save(3);
    rank.copies.copy(3, {}, {});
  });
  fs::remove_all(local(1));  // ranks 1 and 5 read from host 3, whose first rank is 3
  const auto load_all = [&](std::span<const std::int64_t> shared_steps) {
    std::string said;
    on_ranks([&](Rank& rank) {
      Elsewhere world(rank.world);
      HostRestore restores(world, rank.local, shared(), rank.machine, Milliseconds(1000));
      const auto found = restores.find(shared_steps).at(0);
      rank.fill([](std::int64_t) { return -1; });
      if (shared_steps.empty()) {
        const auto text = message_of<DataError>([&] { restores.load(found, rank.state, kAny); });
        if (rank.world.rank() == 0) said = text;
      } else {
        restores.load(found, rank.state, kAny);
        rank.expect_values(3);
      }
    });
    return said;
  };
  expect_contains(load_all({}), "255.255.255.255");
  const std::vector<std::int64_t> steps{3};
  load_all(steps);
}

TEST_F(HostRestoreTest, a_refusal_of_the_configuration_is_thrown_on_all_ranks) {
  on_ranks([](Rank& rank) {
    rank.save(3);
    const auto found = rank.restores.find({}).at(0);
    EXPECT_THROW(
        rank.restores.load(found, rank.state, [](const Json&) { throw ConfigError("other data"); }),
        ConfigError);
  });
}

// A server of one checkpoint with one file, and a client that knows its secret.
class RangeTransferTest : public ::testing::Test {
 protected:
  RangeTransferTest() {
    spit(directory_ / "file", std::string(1'000'000, 'x') + "tail");
    manifest_.files.push_back({"file", 1'000'004, 0, ""});
    server_.emplace(secret_, directory_.path(), manifest_);
  }
  Membership place(const Secret& secret) const {
    return {.rank = 1,
            .ranks = 2,
            .addresses = {"127.0.0.1"},
            .port = server_->port(),
            .secret = secret,
            .listener = 0};
  }
  static std::string next(RangeStream& stream) {
    std::string text;
    stream.next({}, [&](auto piece, std::int64_t done) {
      EXPECT_EQ(done, std::ssize(text));
      text += as_text(piece);
    });
    return text;
  }
  TemporaryDirectory directory_;
  CheckpointManifest manifest_;
  Secret secret_ = Secret::draw();
  std::optional<RangeServer> server_;
};

TEST_F(RangeTransferTest, sends_ranges_in_order_and_reports_those_that_it_cannot_read) {
  const std::vector<FileRange> ranges{{0, 999'990, 14, 0},
                                      {0, 999'990, 15, 0},
                                      {7, 0, 1, 0},
                                      {0, ~0ULL, 2, 1},
                                      {0, 0, 1'000'004, 1}};
  RangeStream stream(place(secret_), ranges, Milliseconds(5000));
  EXPECT_EQ(next(stream), "xxxxxxxxxxtail");
  for (int i = 0; i < 3; ++i)
    EXPECT_THROW(next(stream), DataError);
  EXPECT_EQ(next(stream).size(), 1'000'004U);
}

TEST_F(RangeTransferTest, sends_nothing_without_the_secret_and_ends_while_a_rank_waits) {
  const std::vector<FileRange> all{{0, 0, 1'000'004, 1}};
  EXPECT_THROW(RangeStream(place(Secret::draw()), all, Milliseconds(2000)), Error);
  const std::vector<FileRange> many(1000, all[0]);  // more than the buffers of a socket
  RangeStream stream(place(secret_), many, Milliseconds(5000));
  EXPECT_EQ(next(stream).size(), 1'000'004U);
  server_.reset();
  EXPECT_THROW(for (int i = 0; i < 999; ++i) next(stream), TransientError);
}

// A server whose bytes are not those of its hash, as a faulty NIC would change them.
TEST_F(RangeTransferTest, reports_a_part_of_a_slice_that_arrives_damaged) {
  const Socket listener = listen_at("127.0.0.1", 0);
  std::thread server([&] {
    wait_for(listener, false, Deadline::max());
    auto socket = *accept_from(listener);
    const auto soon = Clock::now() + Milliseconds(5000);
    authenticate(socket, secret_, soon);
    std::vector<std::byte> request(sizeof(std::uint64_t) + sizeof(FileRange));
    socket.receive_all(request, soon);
    const std::uint64_t bytes_follow = 0;
    socket.send_all(std::as_bytes(std::span(&bytes_follow, 1)), soon);
    socket.send_all(as_bytes("text" + hash_hex(std::string_view("test"))), soon);
    socket.finish_sending();
  });
  auto to = place(secret_);
  to.port = listener.port();
  const std::vector<FileRange> ranges{{0, 0, 4, 0}};
  RangeStream stream(to, ranges, Milliseconds(5000));
  EXPECT_THROW(next(stream), DataError);
  server.join();
}

TEST_F(RangeTransferTest, reports_a_file_that_became_shorter) {
  fs::resize_file(directory_ / "file", 100);
  const std::vector<FileRange> ranges{{0, 0, 10, 0}};
  RangeStream stream(place(secret_), ranges, Milliseconds(5000));
  expect_contains(message_of<DataError>([&] { next(stream); }), "expected a file of 1000004 bytes");
}

}  // namespace lockstep::testing::host_restore_test

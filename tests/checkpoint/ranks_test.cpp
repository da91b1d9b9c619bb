// Checkpoints of several ranks; each rank is a thread with its pieces.
#include <set>

#include "checkpoint/checkpointer.h"
#include "checkpoint/compare.h"
#include "checkpoint/safetensors.h"
#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing::ranks_test {

namespace fs = std::filesystem;

constexpr std::int64_t kRows = 6, kColumns = 5, kElements = kRows * kColumns;

float value(std::int64_t step, std::int64_t element) {
  return static_cast<float>(1000 * step + element);
}

class RankCheckpoints : public ::testing::Test {
 protected:
  // A matrix [6, 5] is split in two parts along dimension 0. Of a part's 15 elements its first rank
  // has 10, the second 5. Further ranks hold replicas that they do not save.
  struct Rank {
    explicit Rank(World& world, const fs::path& directory)
        : rank(world.rank()), whole_world(world.size()) {
      const bool alone = whole_world == 1;
      const Split split = alone ? unsplit(Shape{kRows, kColumns}) : Split{0, 2, 3};
      const Piece piece = alone ? Piece{0, 0, kElements}
                                : Piece{rank % 2, rank / 2 == 0 ? 0 : 10, rank / 2 == 0 ? 10 : 15};
      state = bench.poisoned({piece.end - piece.begin}, DType::fp32);
      checkpointer.emplace(directory,
                           std::vector<StateSlice>{{"w", Shape{kRows, kColumns}, split, piece,
                                                    state, /*owned=*/rank < 4}},
                           Retention{}, &world);
      first = piece.part * 15 + piece.begin;
    }
    void fill(std::int64_t step) {
      for (std::int64_t i = 0; i < state.elements(); ++i)
        state.as<float>()[i] = value(step, first + i);
    }
    bool holds(std::int64_t step) {
      for (std::int64_t i = 0; i < state.elements(); ++i)
        if (state.as<float>()[i] != value(step, first + i)) return false;
      return true;
    }
    void save(std::int64_t step) {
      fill(step);
      Json about;
      about.set("step", step);
      checkpointer->save(step, about);
    }
    Bench bench;
    int rank, whole_world;
    Tensor state;
    std::int64_t first = 0;
    std::optional<Checkpointer> checkpointer;
  };

  void on_ranks(int ranks, const std::function<void(Rank&, World&)>& body) {
    run_thread_ranks(ranks, [&](World& world) {
      Rank rank(world, path());
      body(rank, world);
    });
  }
  fs::path path() const { return directory_.path() / "checkpoints"; }

  TemporaryDirectory directory_;
};

constexpr auto kAny = [](const Json&) {};

TEST_F(RankCheckpoints, load_on_the_same_number_of_ranks_and_on_one) {
  on_ranks(4, [](Rank& rank, World&) {
    rank.save(3);
    rank.fill(4);
    EXPECT_EQ(rank.checkpointer->load_newest(kAny)->dump(), R"({"step":3})");
    EXPECT_TRUE(rank.holds(3)) << "rank " << rank.rank;
  });
  on_ranks(1, [](Rank& rank, World&) {
    rank.checkpointer->load_newest(kAny);
    EXPECT_TRUE(rank.holds(3));
  });
}

// Four ranks read parts of slices that one rank wrote; no hash covers the parts.
TEST_F(RankCheckpoints, find_damage_in_slices_of_another_layout) {
  on_ranks(1, [](Rank& rank, World&) {
    rank.save(3);
    rank.save(5);
  });
  on_ranks(4, [](Rank& rank, World&) {
    EXPECT_EQ(rank.checkpointer->load_newest(kAny)->dump(), R"({"step":5})");
    EXPECT_TRUE(rank.holds(5));
  });
  const auto file = checkpoint_path(path(), 5) / "rank-00000.safetensors";
  const auto size = fs::file_size(file);
  for (std::int64_t element = 0; element < kElements; ++element) {
    const auto at = size - static_cast<std::size_t>(kElements - element) * 4;
    flip(file, at, 3);
    on_ranks(4, [&](Rank& rank, World&) {
      EXPECT_EQ(rank.checkpointer->load_newest(kAny)->dump(), R"({"step":3})") << element;
      EXPECT_TRUE(rank.holds(3));
    });
    flip(file, at, 3);
  }
}

TEST_F(RankCheckpoints, save_one_of_several_replicas) {
  on_ranks(6, [](Rank& rank, World&) {
    rank.save(3);
    rank.fill(4);
    rank.checkpointer->load_newest(kAny);
    EXPECT_TRUE(rank.holds(3)) << "rank " << rank.rank;
  });
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& file : fs::directory_iterator(checkpoint_path(path(), 3)))
    ++files;
  EXPECT_EQ(files, 5u);  // four rank files and the manifest
}

// Ranks 0, 1 and 3 are on one host, rank 2 on another. Pieces begin inside blocks of the file, so
// one block has the end of a piece and the begin of the next.
TEST_F(RankCheckpoints, have_one_file_for_the_ranks_of_a_host) {
  constexpr std::int64_t kWide = 70001, kNarrow = 3333;  // elements per rank
  const auto run = [&](const fs::path& directory, int ranks, bool by_node, auto&& act) {
    run_thread_ranks(ranks, [&](World& world) {
      const auto parts = 4 / ranks, first = world.rank() * parts;
      Bench bench;
      std::vector<StateSlice> state;
      for (const auto& [name, dtype, n] :
           {std::tuple{"narrow", DType::bf16, kNarrow}, std::tuple{"wide", DType::fp32, kWide}}) {
        const Shape whole{4 * n};
        state.push_back({name,
                         whole,
                         unsplit(whole),
                         {0, first * n, (first + parts) * n},
                         bench.poisoned({parts * n}, dtype)});
      }
      const std::vector<int> machine = !by_node            ? std::vector<int>()
                                       : world.rank() == 2 ? std::vector{2}
                                                           : std::vector{0, 1, 3};
      Checkpointer checkpointer(directory, state, {}, &world,
                                {.ranks = machine, .one_file = by_node});
      act(checkpointer, state, [&](const StateSlice& slice, std::int64_t i) {
        return static_cast<double>((first * (slice.local.elements() / parts) + i) % 251);
      });
    });
  };
  const auto save = [](Checkpointer& checkpointer, std::vector<StateSlice>& state, auto&& value) {
    for (const std::int64_t step : {1, 2}) {
      for (auto& slice : state)
        for (std::int64_t i = 0; i < slice.local.elements(); ++i)
          Bench::set(slice.local, i, value(slice, i));
      checkpointer.save(step, Json(step));
    }
  };
  const auto load = [](Checkpointer& checkpointer, std::vector<StateSlice>& state, auto&& value) {
    EXPECT_EQ(checkpointer.load_newest(kAny)->as_integer(), 2);
    for (auto& slice : state)
      for (std::int64_t i = 0; i < slice.local.elements(); ++i)
        ASSERT_EQ(get(slice.local, i), value(slice, i)) << slice.name << " " << i;
  };
  run(path(), 4, true, save);
  run(path(), 4, true, load);
  run(path(), 4, false, load);
  run(path(), 1, false, load);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoint_path(path(), 2)))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"manifest.json", "node-rank-00000.safetensors",
                                          "node-rank-00002.safetensors"}));
  const SafetensorsFile file(checkpoint_path(path(), 2) / "node-rank-00000.safetensors");
  EXPECT_EQ(file.tensors().size(), 6u);
  for (const auto& tensor : file.tensors())
    EXPECT_EQ(tensor.offset % bytes_per_element(tensor.type), 0) << tensor.name;
  const auto other = directory_.path() / "by_rank";
  run(other, 4, false, save);
  const auto difference =
      compare_checkpoints(checkpoint_path(path(), 2), checkpoint_path(other, 2));
  EXPECT_EQ(difference.same, 2);
  // Damage at any place is found.
  const auto shared = checkpoint_path(path(), 2) / "node-rank-00000.safetensors";
  for (const std::size_t at : {std::size_t{0}, std::size_t{4095}, std::size_t{4096},
                               static_cast<std::size_t>(fs::file_size(shared)) - 1}) {
    flip(shared, at, 3);
    EXPECT_THROW(verify_checkpoint(checkpoint_path(path(), 2), Depth::contents), DataError) << at;
    flip(shared, at, 3);
  }
}

TEST_F(RankCheckpoints, make_all_ranks_load_an_older_one_if_a_file_is_damaged) {
  on_ranks(4, [&](Rank& rank, World& world) {
    rank.save(3);
    rank.save(5);
    if (rank.rank == 2) fs::remove(checkpoint_path(path(), 5) / "rank-00002.safetensors");
    world.exchange("");
    EXPECT_EQ(rank.checkpointer->load_newest(kAny)->dump(), R"({"step":3})");
    EXPECT_TRUE(rank.holds(3)) << "rank " << rank.rank;
  });
}

TEST_F(RankCheckpoints, are_not_skipped_if_one_rank_may_not_open_a_file) {
  on_ranks(4, [](Rank& rank, World&) { rank.save(3); });
  on_ranks(4, [](Rank& rank, World&) { rank.save(5); });
  const auto file = checkpoint_path(path(), 5) / "rank-00001.safetensors";
  fs::remove(file);
  fs::create_symlink(file, file);  // a link to itself cannot be opened by any user
  on_ranks(4, [](Rank& rank, World&) {
    expect_contains(message_of<AccessError>([&] { rank.checkpointer->load_newest(kAny); }),
                    "rank-00001.safetensors");
  });
}

// A rank's world that creates a directory with the name of the rank's file, once, after rank 0
// created the directory for all files.
class InTheWay final : public WorldOver {
 public:
  InTheWay(World& world, fs::path file) : WorldOver(world), file_(std::move(file)) {}
  std::string broadcast(const std::string& tag, const std::string& text) override {
    auto said = under_.broadcast(tag, text);
    std::error_code absent;
    if (!is_made_ && fs::create_directory(file_, absent))
      is_made_ = fs::create_directory(file_ / "x");
    return said;
  }

 private:
  fs::path file_;
  bool is_made_ = false;
};

TEST_F(RankCheckpoints, report_a_write_error_on_all_ranks_and_leave_no_files) {
  on_ranks(4, [](Rank& rank, World&) { rank.save(3); });
  const fs::path unfinished = checkpoint_path(path(), 5).string() + ".tmp";
  run_thread_ranks(4, [&](World& world) {
    InTheWay blocked(world, unfinished / "rank-00002.safetensors");
    Rank rank(world.rank() == 2 ? blocked : world, path());
    expect_contains(message_of<DataError>([&] { rank.save(5); }), "rank 2: ");
  });
  EXPECT_FALSE(fs::exists(unfinished));
  on_ranks(4, [](Rank& rank, World&) {
    EXPECT_EQ(rank.checkpointer->load_newest(kAny)->dump(), R"({"step":3})");
  });
}

}  // namespace lockstep::testing::ranks_test

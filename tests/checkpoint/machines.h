// Simulated hosts, each with its own directory, and ranks on them that save there. Rank r is on
// host r % machines.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_copier.h"
#include "checkpoint/host_restore.h"
#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing {

class Machines : public ::testing::Test {
 protected:
  struct Form {
    int machines, ranks;
    std::int64_t of_a_rank;  // elements of the state
    bool partners = false, one_file = false;
  };
  explicit Machines(const Form& form) : form_(form) {}

  class Rank {
   public:
    Rank(const Machines& test, World& of_all)
        : world(of_all),
          of_a_rank(test.form_.of_a_rank),
          machine(test.ranks_with(of_all.rank())),
          local(test.local(machine.ranks.front())),
          bench{.host_bytes = 4 * of_a_rank + 4096},
          state({{.name = "w",
                  .whole = Shape{world.size() * of_a_rank},
                  .split = unsplit(Shape{world.size() * of_a_rank}),
                  .piece = {0, world.rank() * of_a_rank, (world.rank() + 1) * of_a_rank},
                  .local = bench.poisoned({of_a_rank}, DType::fp32)}}),
          saves(local, state, {.last = 2}, &world, machine),
          loads(test.shared(), state, {}, &world),
          copies(world, local, test.shared(), machine.ranks),
          restores(world, local, test.shared(), machine) {
      std::filesystem::create_directories(test.shared());  // as a run does
    }

    void save(std::int64_t step, const std::vector<std::int64_t>& keep = {}) {
      fill([&](std::int64_t i) { return value(step, i); });
      saves.save(step, Json(step), keep);
    }
    // In the shared directory it is the newest complete checkpoint.
    void expect(std::int64_t step) {
      fill([](std::int64_t) { return -1; });
      EXPECT_EQ(loads.load_newest([](const Json&) {})->as_integer(), step);
      expect_values(step);
    }
    void expect_values(std::int64_t step) const {
      for (std::int64_t i = 0; i < of_a_rank; ++i)
        ASSERT_EQ(get(state[0].local, i), value(step, i)) << i;
    }
    void fill(const std::function<double(std::int64_t)>& of) {
      for (std::int64_t i = 0; i < of_a_rank; ++i)
        Bench::set(state[0].local, i, of(i));
    }
    double value(std::int64_t step, std::int64_t i) const {
      return static_cast<double>((step * world.size() + world.rank()) * of_a_rank + i);
    }

    World& world;
    std::int64_t of_a_rank;
    HostRanks machine;
    std::filesystem::path local;
    Bench bench;
    std::vector<StateSlice> state;
    Checkpointer saves, loads;
    CheckpointCopier copies;
    HostRestore restores;
  };

  void on_ranks(const std::function<void(Rank&)>& body) const {
    run_thread_ranks(form_.ranks, [&](World& world) {
      Rank rank(*this, world);
      body(rank);
    });
  }
  // The error that an action of all ranks throws on the last rank.
  std::string refused(const std::function<void(Rank&)>& act) const {
    std::string said;
    on_ranks([&](Rank& rank) {
      try {
        act(rank);
        ADD_FAILURE() << "not refused";
      } catch (const DataError& error) {
        if (rank.world.rank() == form_.ranks - 1) said = error.what();
      }
    });
    return said;
  }

  HostRanks ranks_with(int rank) const {
    HostRanks machine{
        .one_file = form_.one_file, .own_directory = true, .partners = form_.partners};
    for (int r = rank % form_.machines; r < form_.ranks; r += form_.machines)
      machine.ranks.push_back(r);
    return machine;
  }
  std::filesystem::path local(int machine) const { return directory_ / str("machine_", machine); }
  std::filesystem::path shared() const { return directory_ / "shared"; }

  using Names = std::set<std::string>;
  static Names names(const std::filesystem::path& directory) {
    Names all;
    if (std::filesystem::exists(directory))
      for (const auto& entry : std::filesystem::directory_iterator(directory))
        all.insert(entry.path().filename());
    return all;
  }
  // Newest step among those not copied yet.
  static std::optional<std::int64_t> newest(Rank& rank) {
    for (const auto& found : rank.restores.find({}))
      if (!found.was_copied) return found.step;
    return std::nullopt;
  }

  Form form_;
  TemporaryDirectory directory_{fast_directory()};
};

}  // namespace lockstep::testing

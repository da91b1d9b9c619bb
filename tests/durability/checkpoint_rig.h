// Durability saves a small state by rank threads, and checks the checkpoints.
#pragma once

#include <cstring>
#include <functional>
#include <optional>

#include "checkpoint/checkpointer.h"
#include "core/mix.h"
#include "tests/durability/disk.h"
#include "tests/files.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"

namespace lockstep::testing {

namespace fs = std::filesystem;

class Durability : public ::testing::Test {
 protected:
  explicit Durability(Shape shape = {5, 7}) {
    state_.push_back(whole_slice("w", bench_.poisoned(shape, DType::fp32)));
    state_.push_back(whole_slice("w/adam_m", bench_.poisoned(shape, DType::bf16)));
  }

  void fill(std::int64_t step) {
    for (const auto& slice : state_)
      for (std::int64_t i = 0; i < slice.local.bytes(); i += 8) {
        const auto bits = mix64(static_cast<std::uint64_t>(step << 40 | i));
        std::memcpy(slice.local.data + i, &bits,
                    static_cast<std::size_t>(std::min<std::int64_t>(8, slice.local.bytes() - i)));
      }
  }

  struct Save {
    std::int64_t step;
    int keep_last;
  };
  // Makes all saves, one after the other. Each rank calls `begin` at the start, and `saved` after
  // each save.
  void save(
      const fs::path& root, const std::vector<Save>& saves, int ranks = 1,
      const std::function<void(World&)>& begin = [](World&) {},
      const std::function<void(World&)>& saved = [](World&) {}) {
    run_thread_ranks(ranks, [&](World& world) {
      begin(world);
      const auto epoch = joined_epoch(directory_of(root), world);
      if (epoch) claimed_();
      for (const auto& [step, keep_last] : saves) {
        world.exchange("");  // all ranks have saved the current state
        if (world.rank() == 0) fill(step);
        world.exchange("");
        Checkpointer({directory_of(root), epoch ? &*epoch : nullptr}, pieces_of(world),
                     {.last = keep_last}, &world)
            .save(step, Json(step));
        saved(world);
      }
    });
  }

  // The newest step, or -1. Fails if a checkpoint is damaged or the newest differs from its state.
  std::int64_t newest(const fs::path& root) {
    for (const auto step : checkpoint_steps(directory_of(root)))
      EXPECT_NO_THROW(
          verify_checkpoint(checkpoint_path(directory_of(root), step), Depth::contents));
    const auto latest = latest_checkpoint(directory_of(root));
    if (!latest) return -1;
    std::vector<std::string> loaded;
    EXPECT_EQ(Checkpointer(directory_of(root), state_).load(*latest).as_integer(), *latest);
    for (const auto& slice : state_)
      loaded.push_back(bytes_of(slice));
    fill(*latest);
    for (std::size_t i = 0; i < state_.size(); ++i)
      EXPECT_EQ(loaded[i], bytes_of(state_[i])) << state_[i].name << " of step " << *latest;
    return *latest;
  }

  static fs::path directory_of(const fs::path& root) { return root / "new/run"; }
  static std::vector<fs::path> unfinished(const fs::path& root) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(root))
      if (const auto path = entry.path().string();
          path.find(".tmp") != path.npos || path.find("/saving/step-") != path.npos)
        found.push_back(entry.path());
    return found;
  }

  bool has_epochs_ = false;                // each save() claims one
  std::function<void()> claimed_ = [] {};  // called on each rank after that

  TemporaryDirectory directory_{fast_directory()}, rest_{fast_directory()};
  Bench bench_{.threads = 1};
  std::vector<StateSlice> state_;

 private:
  // Rank 0 claims an epoch, as the start of a run does.
  std::optional<Epoch> joined_epoch(const fs::path& directory, World& world) const {
    if (!has_epochs_) return std::nullopt;
    std::optional<Epoch> epoch;
    if (world.rank() == 0) epoch = Epoch::claim(directory);
    const auto number = world.exchange(epoch ? str(epoch->number()) : "").front();
    if (!epoch) epoch.emplace(directory, std::stoll(number));
    return epoch;
  }
  std::vector<StateSlice> pieces_of(const World& world) const {
    auto pieces = state_;
    for (auto& slice : pieces) {
      const auto all = slice.whole.elements();
      slice.piece = {0, all * world.rank() / world.size(), all * (world.rank() + 1) / world.size()};
      slice.local =
          slice.local.view({all}).rows(slice.piece.begin, slice.piece.end - slice.piece.begin);
    }
    return pieces;
  }
  static std::string bytes_of(const StateSlice& slice) {
    return {reinterpret_cast<const char*>(slice.local.data),
            static_cast<std::size_t>(slice.local.bytes())};
  }
};

}  // namespace lockstep::testing

#include "train/step/state_slices.h"

#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <tuple>

#include "tests/train/training_rig.h"

namespace lockstep::testing::run_state_test {

struct Layout {
  const char* name;
  Mesh mesh;
  Sharding sharding = Sharding::full;
};

class SharedSaving : public ::testing::TestWithParam<Layout> {
 protected:
  // The slices of every rank, from a measuring Training for each.
  std::vector<std::vector<StateSlice>> slices_of_all(std::int64_t width) const {
    auto config = tiny();
    config.model.width = width;
    config.model.head_size = width / config.model.heads;
    config.model.kv_heads = config.model.heads;
    config.model.mlp_width = 3 * width;
    config.global_batch_sequences = 32;
    config.mesh = GetParam().mesh;
    config.sharding = GetParam().sharding;
    std::vector<std::vector<StateSlice>> all;
    for (int rank = 0; rank < config.mesh.world(); ++rank) {
      Stream compute(Device{}, "measure", Stream::Mode::measuring);
      Arenas arenas = Arenas::measure(Device{});
      LoneWorld world(rank, config.mesh.world());
      Training training(config, compute, arenas, make_comms(world, config.mesh));
      all.push_back(state_slices(training.params(), training.optimizer()));
    }
    return all;
  }
};

TEST_P(SharedSaving, saves_each_element_once) {
  for (const std::int64_t width : {32, 512}) {
    using Key = std::tuple<std::string, int>;  // name, part
    std::map<Key, std::vector<std::pair<std::int64_t, std::int64_t>>> saved;
    std::map<Key, std::int64_t> elements;
    for (const auto& slices : slices_of_all(width))
      for (const auto& slice : slices) {
        const Key key(slice.name, slice.piece.part);
        for (int part = 0; part < slice.split.parts; ++part)
          elements[{slice.name, part}] = part_elements(slice.whole, slice.split, part);
        if (slice.owned) saved[key].emplace_back(slice.piece.begin, slice.piece.end);
      }
    for (const auto& [key, count] : elements) {
      auto& pieces = saved[key];
      std::sort(pieces.begin(), pieces.end());
      std::int64_t at = 0;
      for (const auto& [begin, end] : pieces) {
        EXPECT_EQ(begin, at) << std::get<0>(key) << " part " << std::get<1>(key);
        at = end;
      }
      EXPECT_EQ(at, count) << std::get<0>(key) << " part " << std::get<1>(key);
    }
  }
}

TEST_P(SharedSaving, divides_the_bytes_evenly_among_all_ranks) {
  std::vector<double> bytes;
  for (const auto& slices : slices_of_all(512)) {
    bytes.push_back(0);
    for (const auto& slice : slices)
      if (slice.owned) bytes.back() += static_cast<double>(slice.local.bytes());
  }
  const double mean =
      std::accumulate(bytes.begin(), bytes.end(), 0.0) / static_cast<double>(bytes.size());
  for (const double one : bytes)
    EXPECT_NEAR(one, mean, 0.05 * mean);
}

INSTANTIATE_TEST_SUITE_P(
    layouts, SharedSaving,
    ::testing::Values(
        Layout{"one", {}}, Layout{"replicate", {.replicate = 4}}, Layout{"shard", {.shard = 4}},
        Layout{"tensor", {.tensor = 4}}, Layout{"all", {.replicate = 2, .shard = 2, .tensor = 2}},
        Layout{"gradients", {.replicate = 2, .shard = 4}, Sharding::gradients},
        Layout{"optimizer", {.replicate = 2, .shard = 2, .tensor = 2}, Sharding::optimizer}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace lockstep::testing::run_state_test

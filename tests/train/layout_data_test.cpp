// What ranks read of a dataset: every token of a step once, whatever the layout.
#include <gtest/gtest.h>

#include "core/hash.h"
#include "tests/data/shards.h"
#include "tests/train/layout_rig.h"
#include "train/layout.h"

namespace lockstep::testing {
namespace {

// A sum over sequences, each by its tokens and targets: it does not know their order, and shows one
// that is missing or there twice. Masked sequences count nothing.
class Consumed {
 public:
  void add(const Batch& batch) {
    const auto B = batch.inputs.shape[0], T = batch.inputs.shape[1];
    for (std::int64_t b = 0; b < B; ++b) {
      const auto* targets = batch.targets.as<std::int32_t>() + b * T;
      if (std::all_of(targets, targets + T, [](std::int32_t id) { return id < 0; })) continue;
      Hasher hasher;
      for (const ConstTensor t : {batch.inputs, batch.targets, batch.document_start})
        if (t) hasher.add({t.data + b * T * 4, static_cast<std::size_t>(T * 4)});
      sum_ += std::stoull(hasher.hex().substr(0, 16), nullptr, 16);
      ++sequences_;
    }
  }
  void add(const Consumed& other) {
    sum_ += other.sum_;
    sequences_ += other.sequences_;
  }
  std::int64_t sequences() const { return sequences_; }
  friend bool operator==(const Consumed&, const Consumed&) = default;

 private:
  std::uint64_t sum_ = 0;
  std::int64_t sequences_ = 0;
};

struct Read {
  std::vector<Consumed> steps;  // of all data ranks
  std::vector<double> losses;
};

constexpr std::int64_t kSequences = 10, kLength = 16;
constexpr int kSteps = 4;

// Steps of loaders and rank threads: `sequences` a rank at a time.
Read train_from(const std::string& dataset, const Layout& layout, std::int64_t sequences) {
  auto config = tiny();
  config.model.vocabulary = 257;
  config.model.heads = 16;
  config.model.kv_heads = 8;
  config.model.head_size = 4;
  config.mesh = layout.mesh;
  config.sharding = layout.sharding;
  config.sequence_length = kLength;
  config.micro_batch_sequences = sequences;
  config.global_batch_sequences = kSequences;
  const auto place_of = [&](int rank) { return data_place(layout.mesh, rank); };
  const auto bytes = measure_training(config, Device{}, 1);
  std::vector<std::vector<Consumed>> by_rank(static_cast<std::size_t>(layout.mesh.world()),
                                             std::vector<Consumed>(kSteps));
  Read read;
  run_thread_ranks(layout.mesh.world(), [&](World& world) {
    Bench bench{.threads = 1, .host_bytes = std::int64_t{1} << 20};
    Arenas arenas(Device{}, bytes);
    const auto place = place_of(world.rank());
    Loader loader({.datasets = {dataset},
                   .seed = 3,
                   .sequence_length = int{kLength},
                   .global_batch_sequences = kSequences,
                   .vocabulary = 257,
                   .document_mask = true},
                  static_cast<int>(sequences), place.rank, place.ranks, bench.arena);
    Training training(config, bench.stream, arenas, make_comms(world, layout.mesh));
    training.initialize();
    for (int step = 1; step <= kSteps; ++step) {
      training.begin_step(step, 1e-3);
      for (int m = 0; m < loader.micro_steps(); ++m) {
        const Batch batch = loader.batch((step - 1) * kSequences, m);
        by_rank[static_cast<std::size_t>(world.rank())][static_cast<std::size_t>(step - 1)].add(
            batch);
        loader.release(batch, training.micro_step(batch, m + 1 == loader.micro_steps()));
      }
      training.finish_step();
      const auto numbers = training.numbers(step);
      if (world.rank() == 0) read.losses.push_back(numbers.loss);
    }
  });
  for (std::size_t step = 0; step < kSteps; ++step) {
    read.steps.emplace_back();
    for (int rank = 0; rank < layout.mesh.world(); ++rank) {
      const auto& consumed = by_rank[static_cast<std::size_t>(rank)][step];
      if (layout.mesh.coordinate(Axis::tensor, rank) == 0)
        read.steps.back().add(consumed);
      else
        EXPECT_EQ(consumed, by_rank[static_cast<std::size_t>(rank - 1)][step]) << "tensor ranks";
    }
  }
  return read;
}

// Ten sequences a step: no number of ranks here but two divides them, so some ranks have masked
// ones; and the dataset's seven are read again and again.
TEST(LayoutData, is_consumed_once_by_all_ranks_together) {
  const TemporaryDirectory directory;
  write_dataset(directory / "d", random_documents(7 * kLength + 1), 97);
  const auto dataset = (directory / "d").string();
  const auto one = train_from(dataset, {}, 5);
  for (const auto& consumed : one.steps)
    EXPECT_EQ(consumed.sequences(), kSequences);
  for (const auto& [layout, sequences] :
       {std::pair{Layout{Mesh{{1, 2, 1}}}, 1}, std::pair{Layout{Mesh{{1, 4, 1}}}, 1},
        std::pair{Layout{Mesh{{2, 2, 2}}, Sharding::gradients}, 1},
        std::pair{Layout{Mesh{{1, 3, 1}}, Sharding::optimizer}, 2},
        std::pair{Layout{Mesh{{1, 8, 1}}}, 2}, std::pair{Layout{Mesh{{1, 1, 4}}}, 5},
        std::pair{Layout{Mesh{{3, 1, 2}}}, 1}}) {
    const auto many = train_from(dataset, layout, sequences);
    EXPECT_EQ(many.steps, one.steps) << name_of(layout);
    for (std::size_t i = 0; i < kSteps; ++i)
      EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i])
          << name_of(layout) << " step " << i + 1;
  }
}

}  // namespace
}  // namespace lockstep::testing

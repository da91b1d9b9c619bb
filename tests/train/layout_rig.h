// A few steps of a tiny model on a mesh of rank threads, and what came of them.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "dist/thread_world.h"
#include "tests/dist/ring_world.h"
#include "tests/train/training_rig.h"

namespace lockstep::testing {

struct Layout {
  Mesh mesh = {};
  Sharding sharding = Sharding::full;
  int per_domain = 0;                  // see topology_of_neighbours
  std::vector<int> domain_sizes = {};  // of uneven domains of neighbours
};

inline std::string name_of(const Layout& layout) {
  static constexpr const char* kSharding[] = {"optimizer", "gradients", "full"};
  const auto& s = layout.mesh.sizes;
  return str("r", s[0], "_s", s[1], "_t", s[2], "_",
             kSharding[static_cast<std::size_t>(layout.sharding)]);
}

// Every layout of up to 8 ranks but one rank alone. Sharding `none` is a replicate axis.
inline std::vector<Layout> all_layouts() {
  std::vector<Layout> layouts;
  for (const int replicate : {1, 2, 4, 8})
    for (const int shard : {1, 2, 4, 8})
      for (const int tensor : {1, 2, 4, 8}) {
        if (replicate * shard * tensor > 8 || replicate * shard * tensor == 1) continue;
        for (const auto sharding : {Sharding::optimizer, Sharding::gradients, Sharding::full})
          if (shard > 1 || sharding == Sharding::full)
            layouts.push_back({Mesh{{replicate, shard, tensor}}, sharding});
      }
  return layouts;
}

// Ranks of which `per_domain` neighbours are an NVLink domain; 0: all are in one.
inline Topology topology_of_neighbours(int ranks, int per_domain) {
  Topology topology;
  for (int rank = 0; rank < ranks; ++rank)
    topology.domain_of.push_back(per_domain == 0 ? 0 : rank / per_domain);
  return topology;
}

inline Topology topology_of(const Layout& layout) {
  if (layout.domain_sizes.empty())
    return topology_of_neighbours(layout.mesh.world(), layout.per_domain);
  Topology topology;
  for (std::size_t i = 0; i < layout.domain_sizes.size(); ++i)
    topology.domain_of.insert(topology.domain_of.end(),
                              static_cast<std::size_t>(layout.domain_sizes[i]),
                              static_cast<int>(i));
  return topology;
}

// Whole parameters by name, put together from every rank's segments; each element must be found,
// and the same, wherever it is.
class Assembled {
 public:
  void add(const ParamLayout& layout, const Segment& segment, Tensor flat) {
    const auto& spec = layout.spec(segment.id);
    auto& whole = values_[spec.name];
    if (whole.empty())
      whole.resize(static_cast<std::size_t>(spec.shape.elements()),
                   std::numeric_limits<double>::quiet_NaN());
    const auto at = layout.indices(segment.id);
    for (std::int64_t i = 0; i < segment.count; ++i) {
      const auto j = segment.logical_begin + i;
      auto& element = whole.at(
          static_cast<std::size_t>(at.first + j / at.columns * at.stride + j % at.columns));
      const double value = get(flat, segment.shard_begin + i);
      if (!std::isnan(element)) {
        EXPECT_EQ(element, value) << spec.name << " of two ranks";
      }
      element = value;
    }
  }
  const std::map<std::string, Doubles>& values() const { return values_; }

 private:
  std::map<std::string, Doubles> values_;
};

struct Outcome {
  std::vector<double> losses, norms;
  Assembled initial, gradients, weights;  // of the first step; after the last
  std::int64_t tokens = 0;                // valid ones, of the last step
};

// Batches of `config.global_batch_sequences` sequences, the same on every layout. At the end
// at_end(training, stream) on each rank.
inline Outcome train_on(const Layout& layout, TrainingConfig config, int steps,
                        const std::function<void(Training&, Stream&)>& at_end = {}) {
  config.mesh = layout.mesh;
  config.sharding = layout.sharding;
  const auto topology = topology_of(layout);
  Outcome outcome;
  std::mutex mutex;
  const auto bytes = measure_training(config, Device{}, 1);  // it reserves many addresses: once
  run_thread_ranks(layout.mesh.world(), [&](World& threads) {
    RingWorld world(threads);
    Bench bench{.threads = 1, .host_bytes = std::int64_t{16} << 20};
    Arenas arenas(Device{}, bytes);
    Training training(config, bench.stream, arenas, make_comms(world, layout.mesh, &topology));
    training.initialize();
    const auto tensors = layout.mesh.size(Axis::tensor);
    const std::int64_t ranks = layout.mesh.world() / tensors, rank = world.rank() / tensors;
    const auto B = config.micro_batch_sequences, T = config.sequence_length,
               S = config.global_batch_sequences;
    const auto micro_steps = (S + B * ranks - 1) / (B * ranks);
    const auto gather = [&](Assembled& into, auto&& tensor_of) {
      const std::lock_guard lock(mutex);
      for (auto& shard : training.params().shards())
        for (const auto& segment : shard.segments)
          into.add(training.params().layout(), segment, tensor_of(shard));
    };
    const auto weight = [](const ParamShard& s) { return s.master ? s.master : s.weight; };
    gather(outcome.initial, weight);

    const auto word = [&](std::int64_t step, std::int64_t i) {
      const auto draw = philox(9, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(i));
      return static_cast<std::int32_t>(draw[0] %
                                       static_cast<std::uint64_t>(config.model.vocabulary));
    };
    for (int step = 1; step <= steps; ++step) {
      training.begin_step(step, 1e-3);
      for (std::int64_t m = 0; m < micro_steps; ++m) {
        const Arena::Scope scope(bench.arena);
        std::vector<std::int32_t> ids, next, place;
        for (std::int64_t b = 0; b < B; ++b) {
          const auto sequence = (m * ranks + rank) * B + b;
          for (std::int64_t t = 0; t < T; ++t) {
            const auto i = sequence * (T + 1) + t;
            // Masks differ from sequence to sequence; those behind the batch count nothing.
            const bool masked = sequence >= S || (sequence % 3 == 1 && t < T / 2);
            ids.push_back(sequence >= S ? 0 : word(step, i));
            next.push_back(masked ? -1 : word(step, i + 1));
            place.push_back(static_cast<std::int32_t>(t));
          }
        }
        training.micro_step({.inputs = bench.integers(ids, {B, T}),
                             .targets = bench.integers(next, {B, T}),
                             .positions = bench.integers(place, {B, T}),
                             .document_start = {}},
                            m + 1 == micro_steps);
      }
      training.finish_step();
      if (step == 1) gather(outcome.gradients, [](const ParamShard& s) { return s.grad; });
      const auto numbers = training.numbers(step);
      if (world.rank() == 0) {
        outcome.losses.push_back(numbers.loss);
        outcome.norms.push_back(numbers.grad_norm);
        outcome.tokens = numbers.valid_tokens;
      }
    }
    gather(outcome.weights, weight);
    // A rank that is behind another is the one that others wait for, wherever it sits.
    const auto entered = std::to_string(world.ring()->activity().collectives);
    EXPECT_EQ(world.exchange(entered),
              std::vector<std::string>(static_cast<std::size_t>(world.size()), entered));
    if (at_end) at_end(training, bench.stream);
  });
  return outcome;
}

}  // namespace lockstep::testing

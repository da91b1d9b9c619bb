// Compares the memory of a rank for a sharded model, as the arena counts it, with the formulas of
// docs/parallelism.md. Also counts the all-gathers of weights.
#include <gtest/gtest.h>

#include "tests/train/layout_rig.h"
#include "train/step/batch_shape.h"

namespace lockstep::testing::sharded_memory_test {

struct Model {
  ModelConfig config;
  double ends = 0, layer = 0;  // parameters of the larger end, of a block
  double matrices = 0;         // of a block, those that have copies in fp8
  double all = 0;
  double own = 0;  // in units that share no buffers
};

// Vocabularies need no padding.
Model llama(std::int64_t layers, std::int64_t D, std::int64_t F, std::int64_t V) {
  Model m{.config = small_model(Family::llama3, D, D / 64)};
  m.config.layers = layers;
  m.config.mlp_width = F;
  m.config.vocabulary = V;
  m.matrices = static_cast<double>(4 * D * D + 3 * D * F);
  m.layer = m.matrices + static_cast<double>(2 * D);
  m.ends = static_cast<double>(V * D + D);
  m.all = static_cast<double>(layers) * m.layer + static_cast<double>(2 * V * D + D);
  return m;
}

Model gpt2() {
  const std::int64_t D = 768, V = 50304, T = 1024;
  Model m{.config = small_model(Family::gpt2, D, 12)};
  m.config.layers = 12;
  m.config.mlp_width = 4 * D;
  m.config.vocabulary = V;
  m.config.max_positions = T;
  m.matrices = static_cast<double>(12 * D * D);
  m.layer = m.matrices + static_cast<double>(13 * D);
  m.own = static_cast<double>(V * D + T * D + 2 * D);  // tied: embedding, and the head's norm
  m.all = 12 * m.layer + m.own;
  return m;
}

// Replicas instead of shards are ZeRO stage 0.
constexpr const char* kNone = "none";
struct Way {
  const char* name;
  Sharding sharding;
};
constexpr Way kWays[] = {{kNone, Sharding::full},
                         {"optimizer", Sharding::optimizer},
                         {"gradients", Sharding::gradients},
                         {"weights", Sharding::weights},
                         {"full", Sharding::full}};

struct Measured {
  double weights_and_gradients = 0, optimizer = 0;
};

// The memory in bf16 with fp32 master weights and moments, without the ring of reductions.
Measured measure(const ModelConfig& config, const Mesh& mesh, ParamStore::Options options) {
  options.compute_dtype = DType::bf16;
  LoneWorld world(0, mesh.world());
  Comms comms = make_comms(world, mesh);
  ParamStore params(comms, options);
  Transformer transformer(params, config, {});
  Optimizer optimizer(params, {});
  Stream stream(Device{}, "measure", Stream::Mode::measuring);
  Arena arena = Arena::measure(Device{});
  params.allocate(arena, stream);
  const auto before = arena.used_bytes();
  optimizer.allocate(arena, stream);
  const auto after = arena.used_bytes();
  std::int64_t most = 0;
  for (int unit = 0; unit < params.units(); ++unit)
    most = std::max(most, params.layout().shard_elements(unit));
  ReduceRing(arena, Reduce::fp32, DType::bf16, {&comms.shard, &comms.replicate}, most);
  const auto ring = arena.used_bytes() - after;
  return {static_cast<double>(before - ring), static_cast<double>(after - before)};
}

// Parts of a unit are aligned to 128 elements, units to 128 on each rank, allocations to 256 bytes.
double padding(const ModelConfig& config, int ranks) {
  return static_cast<double>((config.layers + 2) * (16 + ranks) * 128 * 18);
}

void expect_padded(double found, double expected, double most, const std::string& what) {
  EXPECT_GE(found, expected) << what;
  EXPECT_LE(found, expected + most) << what;
}

TEST(ShardedMemory, matches_the_formulas) {
  for (const Model& m : {llama(4, 384, 1024, 8192), llama(8, 512, 1536, 32000), gpt2()})
    for (const int d : {1, 2, 4, 8})
      for (const Way& way : kWays) {
        const bool none = way.name == kNone || d == 1;
        const bool divided = !none && divides_weights(way.sharding);
        const Mesh mesh = way.name == kNone ? Mesh{.replicate = d} : Mesh{.shard = d};
        const auto found = measure(m.config, mesh, {.sharding = way.sharding});
        const auto what = str(name(m.config.family), " of ", m.all, ", ", way.name, " of ", d);
        const double n = m.all, part = none ? n : n / d;
        const double shared = m.own + 2 * m.layer + m.ends;  // whole for a while
        const double weights = divided ? 2 * ((n - m.own) / d + shared) : 2 * n;
        const double gradients =
            none || !reduces_each_micro_batch(way.sharding) ? 4 * n : 4 * part + 4 * shared;
        const auto most = padding(m.config, d);
        expect_padded(found.weights_and_gradients, weights + gradients + 4 * part, most, what);
        expect_padded(found.optimizer, 8 * part, most, what + ", moments");
      }
}

TEST(ShardedMemory, of_fp8_copies_is_that_of_two_blocks_if_weights_are_gathered) {
  const Model m = llama(6, 512, 1536, 8192);
  for (const auto fp8 : {Fp8Matmuls::tensor, Fp8Matmuls::block})
    for (const auto& [sharding, layers] :
         {std::pair{Sharding::full, 2.0}, std::pair{Sharding::gradients, 6.0}}) {
      const auto bytes = [&, sharding = sharding](Fp8Matmuls products) {
        return measure(m.config, {.shard = 4}, {.sharding = sharding, .fp8 = products})
            .weights_and_gradients;
      };
      expect_padded(bytes(fp8) - bytes(Fp8Matmuls::off), 2 * layers * m.matrices,
                    layers * m.matrices / 1000, "fp8");  // and scales: 4 bytes for 128 x 128
    }
}

TEST(ShardedMemory, of_a_block_that_stays_gathered_is_that_of_the_whole_block) {
  const Model m = llama(6, 384, 1024, 8192);
  const auto bytes = [&](std::int64_t kept) {
    return measure(m.config, {.shard = 4}, {.keep_gathered = kept}).weights_and_gradients;
  };
  for (const std::int64_t kept : {1, 3, 4})
    EXPECT_NEAR(bytes(kept) - bytes(0), static_cast<double>(kept) * 2 * m.layer * 3 / 4, 1e4);
  // If all blocks stay gathered, there are no buffers of two blocks.
  EXPECT_NEAR(bytes(6) - bytes(0), (6 * 3.0 / 4 - 2) * 2 * m.layer, 1e4);
}

TrainingConfig sharded(Family family, std::int64_t kept) {
  auto config = tiny();
  if (family == Family::gpt2) config.model = small_model(family, 32, 4);
  config.model.layers = 6;
  config.micro_batch_sequences = 1;
  config.global_batch_sequences = 6;
  config.mesh = {.shard = 2};
  config.keep_gathered = kept;
  return config;
}

// R blocks are not kept. Each forward and backward gathers them, except the last two of the pass
// before it, which are still in the buffers. Untied ends alternate in one buffer.
TEST(Gathers, of_a_step_have_the_documented_number) {
  for (const auto family : {Family::llama3, Family::gpt2})
    for (const std::int64_t kept : {0, 1, 3, 4, 5, 6}) {
      const auto config = sharded(family, kept);
      const std::int64_t micro_batches = 3, R = 6 - kept;
      Stream compute(Device{}, "measure", Stream::Mode::measuring);
      Arenas arenas = Arenas::measure(Device{});
      LoneWorld world(0, 2);
      Training training(config, compute, arenas, make_comms(world, config.mesh));
      const auto& traffic = training.params().comms().gathers->traffic(Collective::all_gather);
      for (int step = 1; step <= 2; ++step) {
        const auto before = traffic.calls;
        training.begin_step(step, 1e-3);
        for (std::int64_t m = 0; m < micro_batches; ++m)
          training.micro_step(batch_shape(1, config.sequence_length), m + 1 == micro_batches);
        training.finish_step();
        const auto ends = family == Family::gpt2 ? 2 : 2 * micro_batches;
        const auto blocks = kept + R + (2 * micro_batches - 1) * std::max<std::int64_t>(R - 2, 0);
        EXPECT_EQ(traffic.calls - before, ends + blocks)
            << name(family) << ", " << kept << " kept, step " << step;
      }
    }
}

TEST(Gathers, that_are_skipped_change_no_bits_within_the_measured_memory) {
  const Layout layout{Mesh{.shard = 2}};
  const auto expected = train_on(layout, sharded(Family::llama3, 0), 3);
  for (const std::int64_t kept : {1, 3, 6}) {
    const auto config = sharded(Family::llama3, kept);
    const auto found = train_on(layout, config, 3);
    EXPECT_EQ(found.losses, expected.losses) << kept;
    EXPECT_EQ(found.weights.values(), expected.weights.values()) << kept;
  }
}

}  // namespace lockstep::testing::sharded_memory_test

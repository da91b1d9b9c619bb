#include "train/step/volume.h"

#include <gtest/gtest.h>

#include "tests/train/layout_rig.h"
#include "train/step/batch_shape.h"

namespace lockstep::testing::volume_test {

using Traffic = Communicator::Traffic;
using Counted = std::array<std::array<Traffic, kCollectives>, kGroups>;

Counted counted(const Comms& comms) {
  Counted all;
  for (std::size_t g = 0; g < kGroups; ++g)
    for (std::size_t k = 0; k < kCollectives; ++k)
      all[g][k] = group_of(comms, static_cast<Group>(g)).traffic(static_cast<Collective>(k));
  return all;
}

Counted derived(const StepShape& step) {
  const auto terms = step_volume(step);
  Counted all;
  for (std::size_t g = 0; g < kGroups; ++g)
    for (std::size_t k = 0; k < kCollectives; ++k)
      all[g][k] = sum_of(terms, static_cast<Group>(g), static_cast<Collective>(k));
  return all;
}

// found - before equals the derived traffic of each group and collective.
void expect_equal(const Counted& found, const Counted& before, const Counted& expected,
                  const std::string& where) {
  for (std::size_t g = 0; g < kGroups; ++g)
    for (std::size_t k = 0; k < kCollectives; ++k) {
      const auto& f = found[g][k];
      const auto& b = before[g][k];
      EXPECT_EQ(f.calls - b.calls, expected[g][k].calls)
          << "calls of group " << g << " " << name(static_cast<Collective>(k)) << where;
      EXPECT_EQ(f.bytes - b.bytes, expected[g][k].bytes)
          << "bytes of group " << g << " " << name(static_cast<Collective>(k)) << where;
    }
}

void step_of(Training& training, int step, std::int64_t micro_batches) {
  const auto& config = training.config();
  const Batch batch = batch_shape(config.micro_batch_sequences, config.sequence_length);
  training.begin_step(step, 0);
  for (std::int64_t m = 1; m <= micro_batches; ++m)
    training.micro_step(batch, m == micro_batches);
  training.finish_step();
}

// Counts the steps of one rank of a mesh; its other ranks do not exist.
void check(const TrainingConfig& config, int rank, int per_domain, const std::string& where) {
  const auto topology = topology_of_neighbours(config.mesh.world(), per_domain);
  Stream compute(Device{}, "measure", Stream::Mode::measuring, 1);
  Arenas arenas = Arenas::measure(Device{});
  LoneWorld world(rank, config.mesh.world());
  Training training(config, compute, arenas,
                    make_comms(world, config.mesh, &topology, config.reduce));
  const Comms& comms = training.params().comms();
  const auto shape = step_shape(training);
  const auto expected = derived(shape);
  Counted before = counted(comms);
  for (int step = 1; step <= 2; ++step) {
    step_of(training, step, shape.micro_batches);
    const auto found = counted(comms);
    expect_equal(found, before, expected, str(" of step ", step, where));
    before = found;
  }
}

struct Model {
  const char* name;
  ModelConfig config;
};

// The models have several numbers of layers: two fit into the buffers of gathered layers, more do
// not.
std::vector<Model> models() {
  std::vector<Model> models;
  for (const auto& [label, family, layers, tied] :
       {std::tuple{"gpt2", Family::gpt2, 3, true}, std::tuple{"llama", Family::llama3, 5, false},
        std::tuple{"llama_tied", Family::llama3, 2, true},
        std::tuple{"gpt2_untied", Family::gpt2, 1, false}}) {
    auto model = small_model(family, 64, 16);
    model.layers = layers;
    if (family != Family::gpt2) model.kv_heads = 8;
    model.mlp_width = 96;
    model.vocabulary = 300;
    model.tied_head = tied;
    models.push_back({label, model});
  }
  return models;
}

std::string name_of(Recompute recompute) {
  static constexpr const char* kNames[] = {"none", "cheap", "block"};
  return kNames[static_cast<std::size_t>(recompute)];
}

constexpr std::array kReduce{Reduce::fp32, Reduce::bf16, Reduce::nccl};

class Volumes : public ::testing::TestWithParam<Layout> {};

TEST_P(Volumes, equal_the_traffic_that_a_step_counts) {
  const Layout& layout = GetParam();
  const int world = layout.mesh.world();
  // Each model and type has each pair of a way to reduce with a recompute or a number of
  // micro-batches.
  std::size_t count = 0;
  for (const auto& model : models())
    for (const auto type : {DType::fp32, DType::bf16})
      for (const auto recompute : {Recompute::none, Recompute::cheap, Recompute::block})
        for (const int micro_batches : {1, 2, 3}) {
          auto config = tiny(type);
          config.model = model.config;
          config.mesh = layout.mesh;
          config.sharding = layout.sharding;
          config.reduce = kReduce[(count + count / 3) % 3];
          ++count;
          config.recompute = recompute;
          config.sequence_length = 21;  // tensor ranks do not divide the tokens
          config.micro_batch_sequences = 1;
          config.global_batch_sequences = micro_batches * world / layout.mesh.size(Axis::tensor);
          for (const int per_domain : {0, 1, 2, 4})
            for (const int rank : {0, world - 1})
              check(config, rank, per_domain,
                    str(", rank ", rank, " of ", name_of(layout), ", ", model.name, " ", name(type),
                        " recompute ", name_of(recompute), " reduce ", name(config.reduce), ", ",
                        micro_batches, " micro-batches, domains of ", per_domain));
        }
}

INSTANTIATE_TEST_SUITE_P(all, Volumes, ::testing::ValuesIn(all_layouts()),
                         [](const auto& c) { return name_of(c.param); });

// Gradients of the large model go through the ring in chunks; its logits are computed in chunks.
TEST(Volume, of_a_large_model_equals_the_traffic_of_a_step) {
  for (const auto sharding : {Sharding::optimizer, Sharding::full}) {
    auto config = tiny(DType::bf16);
    config.model = models()[1].config;
    config.model.width = 4096;
    config.model.heads = 32;
    config.model.head_size = 128;
    config.model.mlp_width = 14336;
    config.model.vocabulary = 128256;
    config.mesh = Mesh{.replicate = 2, .shard = 4, .tensor = 2};
    config.sharding = sharding;
    config.sequence_length = config.model.max_positions = 4096;
    config.global_batch_sequences = 32;
    for (const auto reduce : kReduce)
      for (const int per_domain : {2, 4, 8, 16}) {
        config.reduce = reduce;
        check(config, 5, per_domain, str(", domains of ", per_domain, ", reduce ", name(reduce)));
      }
  }
}

TEST(Volume, of_fp8_matmuls_equals_the_traffic_of_a_step) {
  for (const auto recompute : {Recompute::none, Recompute::block}) {
    auto config = tiny(DType::bf16);
    config.model.width = config.model.mlp_width = 128;
    config.model.heads = config.model.kv_heads = 8;
    config.model.head_size = 16;
    config.fp8 = Fp8Matmuls::tensor;
    config.recompute = recompute;
    for (const auto& mesh : {Mesh{.replicate = 2, .tensor = 4}, Mesh{.shard = 4, .tensor = 2}}) {
      config.mesh = mesh;
      check(config, 3, 0, " in fp8");
    }
  }
}

TEST(Volume, of_chunks_of_the_tokens_equals_the_traffic_of_a_step) {
  for (const auto& [fp8, recompute] :
       {std::pair{Fp8Matmuls::off, Recompute::cheap}, std::pair{Fp8Matmuls::off, Recompute::block},
        std::pair{Fp8Matmuls::tensor, Recompute::block}}) {
    auto config = tiny(DType::bf16);
    config.model.width = config.model.mlp_width = 128;
    config.model.heads = config.model.kv_heads = 8;
    config.model.head_size = 16;
    config.fp8 = fp8;
    config.recompute = recompute;
    config.sequence_length = config.model.max_positions = 64;
    config.micro_batch_sequences = 1;
    config.tensor_chunks = 4;
    config.mesh = Mesh{.shard = 2, .tensor = 4};
    check(config, 3, 0, " in four chunks");
    config.sequence_length = fp8 == Fp8Matmuls::off ? 24 : 48;  // four chunks would be uneven
    check(config, 3, 0, " in one chunk");
  }
}

TEST(Volume, of_layers_that_stay_gathered_equals_the_traffic_of_a_step) {
  auto config = tiny();
  config.model = models()[1].config;  // five layers
  config.mesh = Mesh{.shard = 4, .tensor = 2};
  config.micro_batch_sequences = 1;
  config.global_batch_sequences = 12;
  for (config.keep_gathered = 0; config.keep_gathered <= 5; ++config.keep_gathered)
    check(config, 3, 0, str(", ", config.keep_gathered, " layers stay gathered"));
}

TEST(Volume, equals_the_traffic_of_existing_ranks) {
  for (const auto& layout :
       {Layout{Mesh{.replicate = 2, .shard = 2, .tensor = 2}, Sharding::full, 2},
        Layout{Mesh{.replicate = 2, .shard = 4}, Sharding::gradients, 2, {}, Reduce::bf16},
        Layout{Mesh{.replicate = 2, .shard = 4}, Sharding::full, 2, {}, Reduce::nccl},
        Layout{Mesh{.shard = 8}, Sharding::gradients, 4},
        Layout{Mesh{.shard = 4, .tensor = 2}, Sharding::optimizer}}) {
    auto config = tiny();
    config.mesh = layout.mesh;
    config.sharding = layout.sharding;
    config.reduce = layout.reduce;
    config.micro_batch_sequences = 1;
    config.global_batch_sequences = 16;
    const auto topology = topology_of_neighbours(layout.mesh.world(), layout.per_domain);
    const auto bytes = measure_training(config, Device{}, 1);
    run_thread_ranks(layout.mesh.world(), [&](World& world) {
      Bench bench{.threads = 1, .host_bytes = std::int64_t{1} << 20};
      Arenas arenas(Device{}, bytes);
      Training training(config, bench.stream, arenas,
                        make_comms(world, layout.mesh, &topology, layout.reduce));
      training.initialize();
      const auto shape = step_shape(training);
      const auto B = config.micro_batch_sequences, T = config.sequence_length;
      const std::vector<std::int32_t> ids(static_cast<std::size_t>(B * T), 7);
      const auto tokens = bench.integers(ids, {B, T});
      training.begin_step(1, 1e-3);
      for (std::int64_t m = 1; m <= shape.micro_batches; ++m)
        training.micro_step(
            {.inputs = tokens, .targets = tokens, .positions = tokens, .document_start = {}},
            m == shape.micro_batches);
      training.finish_step();
      training.numbers(1);
      expect_equal(counted(training.params().comms()), {}, derived(shape),
                   str(", rank ", world.rank(), " of ", name_of(layout)));
    });
  }
}

}  // namespace lockstep::testing::volume_test

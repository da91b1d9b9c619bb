#include "launch/plan/step_program.h"

#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "launch/plan/step_time.h"
#include "tests/dist/ring_world.h"
#include "tests/train/layout_rig.h"

namespace lockstep::testing::step_program_test {

constexpr double kForward = 2, kTraining = 6;  // FLOPs per weight and token

TrainingConfig one_rank() {
  TrainingConfig config = tiny();
  config.model.vocabulary = 128;  // without padding
  return config;
}

struct Sums {
  double products = 0, attention = 0;
};

Sums flops_of(const StepProgram& program) {
  Sums sums;
  for (const auto& entry : program.log->entries()) {
    if (entry.op.kind == Op::Kind::product) sums.products += entry.op.flops;
    if (entry.op.kind == Op::Kind::attention) sums.attention += entry.op.flops;
  }
  return sums;
}

TEST(StepProgram, has_the_flops_that_the_model_counts) {
  TrainingConfig config = one_rank();
  for (const std::int64_t micro_batches : {1, 2, 3}) {
    config.global_batch_sequences = micro_batches * config.micro_batch_sequences;
    const auto program = record_step(config, Device{}, 1);
    const auto tokens = static_cast<double>(config.step_tokens());
    const auto weights = static_cast<double>(matmul_parameters(config.model));
    const auto sums = flops_of(program);
    EXPECT_DOUBLE_EQ(sums.products, kTraining * weights * tokens);
    const auto& m = config.model;
    const auto T = static_cast<double>(config.sequence_length);
    // Seven matmuls of T (T + 1) / 2 elements; the model counts six of T^2 / 2.
    EXPECT_DOUBLE_EQ(sums.attention, 7.0 * static_cast<double>(m.layers * m.heads * m.head_size) *
                                         (T + 1) * tokens);
  }
}

TEST(StepProgram, has_another_forward_pass_of_recomputed_blocks) {
  TrainingConfig config = one_rank();
  const auto all = flops_of(record_step(config, Device{}, 1)).products;
  config.recompute = Recompute::block;
  const auto again = flops_of(record_step(config, Device{}, 1)).products;
  const auto& m = config.model;
  const auto head = static_cast<double>(m.vocabulary) * static_cast<double>(m.width);
  const auto tokens = static_cast<double>(config.step_tokens());
  const auto blocks = static_cast<double>(matmul_parameters(m)) - head;
  EXPECT_NEAR(again - all, kForward * blocks * tokens, 0.2 * kForward * blocks * tokens);
  EXPECT_GT(again, all);
}

TEST(StepProgram, has_the_collectives_of_step_volume) {
  for (const Layout& layout : all_layouts()) {
    TrainingConfig config = one_rank();
    config.model.kv_heads = 4;
    config.model.heads = 8;
    if (layout.mesh.size(Axis::tensor) == 8) config.model.kv_heads = 8;
    config.mesh = layout.mesh;
    config.sharding = layout.sharding;
    config.global_batch_sequences = 32;  // 2 to 16 micro-batches; at most three are recorded
    const auto topology = topology_of_neighbours(config.mesh.world(), 4);
    for (const int rank : {0, config.mesh.world() - 1}) {
      auto program = record_step(config, Device{}, 1, rank, &topology);
      StepShape step = program.shape;
      EXPECT_EQ(step.micro_batches, program.micro_batches);
      step.micro_batches = std::ssize(program.micro_ends);
      std::map<std::pair<Group, std::string>, Communicator::Traffic> found, expected;
      for (const auto& entry : program.log->entries()) {
        if (entry.op.kind != Op::Kind::collective) continue;
        auto& traffic = found[{entry.op.group, entry.op.name}];
        ++traffic.calls;
        traffic.bytes += entry.op.bytes;
      }
      for (const auto& term : step_volume(step)) {
        auto& traffic = expected[{term.group, name(term.kind)}];
        traffic.calls += term.traffic.calls;
        traffic.bytes += term.traffic.bytes;
      }
      EXPECT_EQ(found, expected) << name_of(layout) << " rank " << rank;
    }
  }
}

// NCCL begins collectives in the order of the program. After the reduction, the all-gather of the
// embedding would delay the next forward.
TEST(StepProgram, gathers_the_embedding_again_before_its_reduction) {
  TrainingConfig config = one_rank();
  config.mesh = Mesh{.shard = 8};
  config.sharding = Sharding::full;
  config.global_batch_sequences = 3 * 8 * config.micro_batch_sequences;
  const auto topology = topology_of_neighbours(8, 4);
  const auto program = record_step(config, Device{}, 1, 0, &topology);
  const auto& entries = program.log->entries();
  const auto embedding =
      7 * program.shape.units.front().elements / 8 * bytes_per_element(program.shape.type);
  const auto is = [&](std::size_t i, const std::string& name) {
    return entries[i].what == OpLog::What::op && entries[i].op.name == name;
  };
  std::size_t last_gather = 0, last_pack = 0, i = 0;
  for (; i < program.micro_ends[0]; ++i) {
    if (is(i, "all_gather")) last_gather = i;
    if (is(i, "pack_pieces")) last_pack = i;
  }
  EXPECT_EQ(entries[last_gather].op.bytes, embedding);
  EXPECT_LT(last_gather, last_pack);
  while (i < entries.size() && !is(i, "all_gather"))
    ++i;
  ASSERT_LT(i, entries.size());
  EXPECT_NE(entries[i].op.bytes, embedding) << "it is gathered already";
}

// Order has the order of a log's calls that streams and events enforce.
class Order {
 public:
  explicit Order(const OpLog& log) : entries_(log.entries()) {
    std::map<int, Ends> streams;
    std::map<std::int64_t, Ends> events;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const auto& entry = entries_[i];
      Ends& ends = streams[entry.stream];
      if (entry.what == OpLog::What::record) events[entry.event] = ends;
      if (entry.what == OpLog::What::wait)
        for (const auto& [stream, end] : events[entry.event])
          ends[stream] = std::max(ends[stream], end);
      before_.push_back(ends);
      if (entry.what == OpLog::What::op) ends[entry.stream] = i + 1;
    }
  }
  bool is_before(std::size_t i, std::size_t j) const {
    const auto end = before_[j].find(entries_[i].stream);
    return end != before_[j].end() && end->second > i;
  }
  bool may_overlap(std::size_t i, std::size_t j) const {
    return !is_before(i, j) && !is_before(j, i);
  }

 private:
  using Ends = std::map<int, std::size_t>;  // by stream: end of its calls that are before
  const std::vector<OpLog::Entry>& entries_;
  std::vector<Ends> before_;
};

// In backward, the all-to-all of dx runs beside the product for the weights' gradient, and the
// all-gather of x beside the product that makes dx. Recompute runs beside the all-gather of dy.
TEST(StepProgram, tensor_collectives_of_backward_run_beside_products) {
  TrainingConfig config = layout_config(Family::llama3);
  config.mesh = Mesh{.tensor = 2};
  config.recompute = Recompute::cheap;
  config.global_batch_sequences = config.micro_batch_sequences;
  const auto program = record_step(config, Device{Device::Kind::cuda}, 1);
  const auto& entries = program.log->entries();
  const Order order(*program.log);
  const auto is = [&](std::size_t i, const char* name) {
    return i < entries.size() && entries[i].what == OpLog::What::op &&
           entries[i].op.name == std::string(name);
  };
  const auto next_of_compute = [&](std::size_t i) {
    do
      ++i;
    while (i < entries.size() && (entries[i].what != OpLog::What::op || entries[i].stream != 0));
    return i;
  };
  std::int64_t sums = 0, recomputed = 0;
  for (std::size_t i = 0, gather = 0, input = 0; i < entries.size(); ++i) {
    if (is(i, "all_gather")) gather = i;
    if (is(i, "matmul_backward_input")) input = i;
    if (is(i, "swiglu_forward") && order.may_overlap(gather, i)) ++recomputed;
    const std::size_t weight = next_of_compute(i), after = next_of_compute(weight);
    if (!is(i, "all_to_all") || !is(weight, "matmul_backward_weight")) continue;
    ++sums;
    EXPECT_NE(entries[i].stream, entries[weight].stream);
    EXPECT_TRUE(order.is_before(input, i));
    EXPECT_TRUE(order.may_overlap(i, weight));
    EXPECT_TRUE(order.is_before(i, after)) << entries[after].op.name;
    EXPECT_TRUE(order.may_overlap(gather, input));
    EXPECT_TRUE(order.is_before(gather, weight));
  }
  EXPECT_EQ(sums, 2 * config.model.layers);
  EXPECT_EQ(recomputed, config.model.layers);
}

// On CPUs a thread of their own would take cores from compute.
TEST(StepProgram, tensor_collectives_of_cpus_are_on_the_compute_stream) {
  TrainingConfig config = layout_config(Family::llama3);
  config.mesh = Mesh{.tensor = 2};
  const auto program = record_step(config, Device{}, 1);
  EXPECT_EQ(program.log->streams(), std::vector<std::string>{"compute"});
}

// Sums across domains have one rank per domain. If domains hold unequal numbers of ranks, the sums
// have all ranks.
TEST(StepProgram, has_the_number_of_domains_of_a_group) {
  TrainingConfig config = one_rank();
  config.mesh = Mesh{.shard = 8};
  config.global_batch_sequences = 8;
  const auto across = [&](int per_domain) {
    const auto topology = topology_of_neighbours(8, per_domain);
    const auto program = record_step(config, Device{}, 1, 0, &topology);
    const auto& place = program.place_of(Group::shard_across);
    return std::pair(place.ranks, place.domains);
  };
  EXPECT_EQ(across(4), std::pair(2, 2));
  EXPECT_EQ(across(5), std::pair(8, 2));
  EXPECT_EQ(across(1), std::pair(8, 8));
}

// A plan prices the reduction that the configuration sets.
TEST(StepProgram, has_the_reduction_of_the_configuration) {
  TrainingConfig config = one_rank();
  config.compute = DType::bf16;
  config.mesh = Mesh{.shard = 8};
  config.global_batch_sequences = 8;
  const auto topology = topology_of_neighbours(8, 4);
  const auto groups = [&](Reduce reduce) {
    config.reduce = reduce;
    const auto program = record_step(config, Device{}, 1, 0, &topology);
    const auto& place = program.place_of(Group::shard);
    std::set<std::string> calls;
    for (const auto& entry : program.log->entries())
      if (entry.what == OpLog::What::op && entry.op.kind == Op::Kind::collective)
        calls.insert(entry.op.name);
    return std::tuple(place.ranks, place.domains, calls.count("reduce_scatter"),
                      calls.count("all_to_all"));
  };
  EXPECT_EQ(groups(Reduce::fp32), std::tuple(1, 1, 0u, 1u));
  EXPECT_EQ(groups(Reduce::bf16), std::tuple(1, 1, 0u, 1u));
  EXPECT_EQ(groups(Reduce::nccl), std::tuple(8, 2, 1u, 0u));
}

TEST(StepProgram, has_the_peak_memory_of_a_run) {
  TrainingConfig config = one_rank();
  config.sample_tokens = 8;
  const auto program = record_step(config, Device{}, 1);
  const auto whole = measure_training(config, Device{}, 1);
  EXPECT_EQ(program.peak.device, whole.device);
  EXPECT_EQ(program.peak.pinned, whole.pinned);
  const auto sum = std::accumulate(program.peak_by_purpose.begin(), program.peak_by_purpose.end(),
                                   std::int64_t{0});
  EXPECT_EQ(sum, program.peak.device);
}

std::set<std::string> components_of(const StepTime& time) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kComponents; ++i)
    if (time.seconds[i] > 0 && static_cast<Component>(i) != Component::other)
      names.insert(name(static_cast<Component>(i)));
  return names;
}

TEST(StepProgram, has_the_same_components_as_a_measured_step) {
  for (const Layout& layout : all_layouts()) {
    if (layout.mesh.world() > 4) continue;
    TrainingConfig config = one_rank();
    config.model.heads = config.model.kv_heads = 4;
    config.global_batch_sequences = 8;
    config.mesh = layout.mesh;
    config.sharding = layout.sharding;
    const auto planned = step_time(
        record_step(config, Device{}, 1),
        {.seconds = [](const Op& op) { return op.kind == Op::Kind::collective ? 1.0 : 0.01; },
         .host_computes = true});
    train_on(layout, config, 1, {.behind = [&](LayoutRank& rank) {
               const StepTime measured = rank.training().trace().take();
               EXPECT_EQ(components_of(measured), components_of(planned)) << name_of(layout);
             }});
  }
}

}  // namespace lockstep::testing::step_program_test

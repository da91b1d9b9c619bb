#include "launch/plan/step_time.h"

#include <functional>
#include <gtest/gtest.h>

#include "tests/dist/ring_world.h"
#include "tests/train/layout_rig.h"
#include "train/step/batch_shape.h"
#include "train/step/volume.h"

namespace lockstep::testing::step_time_test {

// Toy holds a program of a compute stream and a concurrent stream. The bytes of an operator are its
// milliseconds.
struct Toy {
  Toy() {
    program.log = std::make_unique<OpLog>();
    for (Stream* s : {&compute, &gathers})
      s->set_op_log(program.log.get());
    compute.record();
    gathers.record();
  }
  static void give(Stream& stream, Op::Kind kind, std::int64_t milliseconds,
                   Group group = Group::gathers, int ranks = 2) {
    Op op;
    op.name = "toy";
    op.kind = kind;
    op.bytes = milliseconds;
    op.group = group;
    op.ranks = ranks;
    const OpLog::Call call(stream, op);
  }
  StepTime time(StreamCosts costs) {
    program.micro_ends = {program.log->entries().size()};
    return step_time(program, costs);
  }
  StepTime time() { return time({.seconds = kSeconds}); }

  static constexpr auto kSeconds = [](const Op& op) {
    return 1e-3 * static_cast<double>(op.bytes);
  };
  StepProgram program;
  Stream compute{Device{}, "compute", Stream::Mode::measuring};
  Stream gathers{Device{}, "gathers", Stream::Mode::measuring};
};

TEST(StepTime, is_the_sum_of_the_calls_on_one_stream) {
  Toy toy;
  toy.give(toy.compute, Op::Kind::product, 5);
  toy.give(toy.compute, Op::Kind::attention, 3);
  toy.give(toy.compute, Op::Kind::memory, 2);
  const auto time = toy.time();
  EXPECT_NEAR(time.total(), 10e-3, 1e-12);
  EXPECT_NEAR(time[Component::products], 5e-3, 1e-12);
  EXPECT_NEAR(time[Component::attention], 3e-3, 1e-12);
  EXPECT_NEAR(time[Component::memory_bound], 2e-3, 1e-12);
}

TEST(StepTime, communication_counts_only_while_compute_waits_for_it) {
  for (const std::int64_t gather : {2, 7, 20}) {
    Toy toy;
    toy.give(toy.gathers, Op::Kind::collective, gather);
    const auto gathered = toy.gathers.record();
    toy.give(toy.compute, Op::Kind::product, 6);
    toy.compute.wait(gathered);
    toy.give(toy.compute, Op::Kind::product, 4);
    const auto time = toy.time();
    const auto exposed = static_cast<double>(std::max<std::int64_t>(gather - 6, 0));
    EXPECT_NEAR(time[Component::communication_shard], 1e-3 * exposed, 1e-12) << gather;
    EXPECT_NEAR(time[Component::products], 10e-3, 1e-12);
    EXPECT_NEAR(time.total(), 1e-3 * (10 + exposed), 1e-12);
  }
}

TEST(StepTime, streams_wait_for_each_other_both_ways) {
  Toy toy;
  toy.give(toy.compute, Op::Kind::product, 3);
  toy.gathers.wait(toy.compute.record());
  toy.give(toy.gathers, Op::Kind::collective, 4);
  toy.compute.wait(toy.gathers.record());
  toy.give(toy.compute, Op::Kind::product, 1);
  const auto time = toy.time();
  EXPECT_NEAR(time.total(), 8e-3, 1e-12);
  EXPECT_NEAR(time[Component::communication_shard], 4e-3, 1e-12);
}

TEST(StepTime, concurrent_streams_slow_each_other) {
  Toy toy;
  toy.give(toy.gathers, Op::Kind::collective, 4);  // 8 ms beside compute
  toy.give(toy.compute, Op::Kind::product, 10);    // 8 ms slower by half, then the rest
  const auto slower = [](const Op& op) { return op.kind == Op::Kind::collective ? 1.5 : 9.0; };
  const auto time =
      toy.time({.seconds = Toy::kSeconds, .compute_beside = slower, .other_beside = 2});
  EXPECT_NEAR(time.total(), 1e-3 * (8 + 10 - 8 / 1.5), 1e-9);
}

// A rank waits for a tenth of its compute time since the last collective of `tensor` or `all`.
// Waits and other streams do not count as compute time. The stream of the collective does not
// matter.
TEST(StepTime, collectives_include_waits_for_slower_ranks) {
  Toy toy;
  toy.give(toy.compute, Op::Kind::product, 20);
  toy.give(toy.gathers, Op::Kind::collective, 1);
  toy.give(toy.compute, Op::Kind::collective, 3, Group::tensor);  // + 2
  toy.give(toy.compute, Op::Kind::collective, 3, Group::all);     // + 0
  toy.give(toy.compute, Op::Kind::memory, 40);
  toy.gathers.wait(toy.compute.record());
  toy.give(toy.gathers, Op::Kind::collective, 3, Group::tensor);  // + 4
  toy.compute.wait(toy.gathers.record());
  const auto time = toy.time({.seconds = Toy::kSeconds, .wait_share = 0.1});
  EXPECT_NEAR(time.total(), 75e-3, 1e-12);
  EXPECT_NEAR(time[Component::communication_tensor], 12e-3, 1e-12);
  EXPECT_NEAR(time[Component::communication_ranks], 3e-3, 1e-12);
  EXPECT_NEAR(toy.time().total(), 69e-3, 1e-12);
}

// A reduction begins 5 ms after the block before it. In launch order, the tensor collective of the
// next block waits for its begin, and not for its end.
TEST(StepTime, collectives_begin_in_launch_order) {
  Toy toy;
  toy.give(toy.compute, Op::Kind::product, 2);
  toy.gathers.wait(toy.compute.record());
  toy.give(toy.gathers, Op::Kind::memory, 5);
  toy.give(toy.gathers, Op::Kind::collective, 20);
  toy.give(toy.compute, Op::Kind::product, 1);  // matmuls have no order
  toy.give(toy.compute, Op::Kind::collective, 3, Group::tensor);
  toy.give(toy.compute, Op::Kind::product, 4);
  EXPECT_NEAR(toy.time().total(), 10e-3, 1e-12);
  const auto all = [](const Op&) { return true; };
  const auto time = toy.time({.seconds = Toy::kSeconds, .extends_order = all});
  EXPECT_NEAR(time.total(), 14e-3, 1e-12);
  EXPECT_NEAR(time[Component::communication_shard], 4e-3, 1e-12);
  EXPECT_NEAR(time[Component::communication_tensor], 3e-3, 1e-12);
  const auto kernels = [](const Op& op) { return op.group == Group::tensor; };
  EXPECT_NEAR(toy.time({.seconds = Toy::kSeconds, .extends_order = kernels}).total(), 10e-3, 1e-12)
      << "copies do not extend the order";
}

// Copies wait for the tensor collective before them, and the product at the end waits for both.
TEST(StepTime, copies_wait_for_the_launch_order) {
  Toy toy;
  toy.give(toy.compute, Op::Kind::product, 7);
  toy.give(toy.compute, Op::Kind::collective, 3, Group::tensor);
  toy.give(toy.gathers, Op::Kind::collective, 20);
  toy.compute.wait(toy.gathers.record());
  EXPECT_NEAR(toy.time().total(), 20e-3, 1e-12);
  const auto kernels = [](const Op& op) { return op.group == Group::tensor; };
  EXPECT_NEAR(toy.time({.seconds = Toy::kSeconds, .extends_order = kernels}).total(), 27e-3, 1e-12);
}

TEST(StepTime, collectives_of_one_rank_have_no_launch_order) {
  Toy toy;
  toy.give(toy.gathers, Op::Kind::memory, 5);
  toy.give(toy.gathers, Op::Kind::collective, 0, Group::gathers, 1);
  toy.give(toy.compute, Op::Kind::collective, 3, Group::tensor);
  const auto all = [](const Op&) { return true; };
  EXPECT_NEAR(toy.time({.seconds = Toy::kSeconds, .extends_order = all}).total(), 3e-3, 1e-12);
}

// Calls of 10 and 20 ms, half of each on the NIC. While both run, each takes 1 + 0.5 x 0.5 times as
// long: the first ends at 12.5 ms, when the second has done 10 ms.
TEST(StepTime, concurrent_calls_share_the_nic) {
  Toy toy;
  Stream scatters(Device{}, "scatters", Stream::Mode::measuring);
  scatters.set_op_log(toy.program.log.get());
  toy.give(toy.gathers, Op::Kind::collective, 10);
  toy.give(scatters, Op::Kind::collective, 20);
  toy.compute.wait(toy.gathers.record());
  toy.compute.wait(scatters.record());
  EXPECT_NEAR(toy.time().total(), 20e-3, 1e-12);
  const auto half = [](const Op&) { return 0.5; };
  EXPECT_NEAR(toy.time({.seconds = Toy::kSeconds, .network_share = half}).total(), 22.5e-3, 1e-12);
}

TEST(StepTime, streams_do_not_overlap_on_a_cpu) {
  Toy toy;
  toy.give(toy.compute, Op::Kind::product, 6);
  toy.give(toy.gathers, Op::Kind::collective, 4);
  toy.compute.wait(toy.gathers.record());
  EXPECT_NEAR(toy.time().total(), 6e-3, 1e-12);
  EXPECT_NEAR(toy.time({.seconds = Toy::kSeconds, .host_computes = true}).total(), 10e-3, 1e-12);
}

TEST(StepTime, slow_launches_of_the_host_count_as_other) {
  Toy toy;
  for (int i = 0; i < 5; ++i)
    toy.give(toy.compute, Op::Kind::product, 1);
  const auto launch = [](const Op&) { return 3e-3; };
  const auto time = toy.time({.seconds = Toy::kSeconds, .launch_seconds = launch});
  EXPECT_NEAR(time.total(), 16e-3, 1e-12);
  EXPECT_NEAR(time[Component::other], 11e-3, 1e-12);
}

// Compares a program of all micro-batches with one of record_step(), which has three of them.
TEST(StepTime, three_recorded_micro_batches_predict_the_time_of_all) {
  for (const Layout& layout : all_layouts()) {
    if (layout.mesh.world() > 4) continue;
    TrainingConfig config = tiny();
    config.model.heads = config.model.kv_heads = 4;
    config.mesh = layout.mesh;
    config.sharding = layout.sharding;
    config.global_batch_sequences = 56;
    const auto short_one = record_step(config, Device{}, 1);
    StepProgram whole;
    whole.log = std::make_unique<OpLog>();
    Stream compute(Device{}, "compute", Stream::Mode::measuring, 1);
    compute.set_op_log(whole.log.get());
    compute.record();
    Arenas arenas = Arenas::measure(Device{});
    LoneWorld world(0, config.mesh.world());
    Training training(config, compute, arenas, make_comms(world, config.mesh));
    whole.micro_batches = step_shape(training).micro_batches;
    whole.log->clear();
    const Batch batch = batch_shape(config.micro_batch_sequences, config.sequence_length);
    training.begin_step(1, 0);
    for (std::int64_t m = 1; m <= whole.micro_batches; ++m)
      training.micro_step(batch, m == whole.micro_batches);
    whole.micro_ends.assign(static_cast<std::size_t>(whole.micro_batches),
                            whole.log->entries().size());
    training.finish_step();
    ASSERT_GT(whole.micro_batches, 3);
    const auto seconds = [](const Op& op) {
      return 1e-9 * static_cast<double>(op.bytes) * (op.kind == Op::Kind::collective ? 9 : 1) +
             1e-12 * op.flops;
    };
    const auto slower = [](const Op&) { return 1.2; };
    const StreamCosts costs{
        .seconds = seconds, .compute_beside = slower, .other_beside = 1.3, .wait_share = 0.1};
    const auto expected = step_time(whole, costs), found = step_time(short_one, costs);
    EXPECT_NEAR(found.total(), expected.total(), 0.01 * expected.total()) << name_of(layout);
    EXPECT_NEAR(found[Component::products], expected[Component::products], 0.03 * expected.total());
  }
}

}  // namespace lockstep::testing::step_time_test

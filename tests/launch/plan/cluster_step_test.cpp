#include "launch/plan/cluster_step.h"

#include <gtest/gtest.h>

#include "tests/launch/plan/cluster_rig.h"

namespace lockstep::testing::cluster_step_test {

constexpr int kRanks = 16;
constexpr std::int64_t kComputed = std::int64_t{64} << 30;  // 24 ms of HBM

// Step time of a rank that computes while it receives `bytes` from ranks on `machines` hosts.
StepTime time_beside(const Cluster& cluster, Collective kind, int machines, std::int64_t bytes) {
  StepProgram program;
  program.log = std::make_unique<OpLog>();
  Stream compute{Device{}, "compute", Stream::Mode::measuring};
  Stream gathers{Device{}, "gathers", Stream::Mode::measuring};
  for (Stream* stream : {&compute, &gathers}) {
    stream->set_op_log(program.log.get());
    stream->record();
  }
  Op gather;
  gather.name = name(kind);
  gather.kind = Op::Kind::collective;
  gather.bytes = bytes;
  gather.ranks = kRanks;
  gather.group = Group::gathers;
  program.groups[static_cast<std::size_t>(Group::gathers)] = {.ranks = kRanks, .domains = machines};
  { const OpLog::Call call(gathers, gather); }
  Op norm;
  norm.name = "rmsnorm_forward";
  norm.kind = Op::Kind::memory;
  norm.bytes = kComputed;
  { const OpLog::Call call(compute, norm); }
  program.micro_ends = {program.log->entries().size()};
  return step_time_on(cluster, program);
}

double computed_alone(const Cluster& cluster) {
  return TimeModel(cluster.hardware).memory_seconds(static_cast<double>(kComputed));
}

// During a collective, compute has 1 - lost of its speed.
TEST(StepTimeOn, a_collective_slows_compute_by_the_lost_share_of_its_time) {
  const Cluster cluster = h100s(2);
  const TimeModel time_model(cluster.hardware);
  const double alone = computed_alone(cluster);
  for (const auto kind : {Collective::all_gather, Collective::all_to_all, Collective::all_reduce})
    for (const std::int64_t bytes : {1 << 10, 1 << 20, 1 << 28}) {
      const CollectiveCall call{
          .kind = kind, .bytes = static_cast<double>(bytes), .ranks = kRanks, .inside = kRanks / 2};
      const double lost = time_model.lost_share(call) * time_model.collective_seconds(call);
      EXPECT_NEAR(time_beside(cluster, kind, 2, bytes).total(), alone + lost, 1e-9 * alone)
          << name(kind) << " of " << bytes;
    }
}

TEST(StepTimeOn, a_measured_slowdown_replaces_the_known_one) {
  Cluster cluster = h100s(2);
  cluster.compute_beside = 1.5;
  const double alone = computed_alone(cluster);
  const double gather = TimeModel(cluster.hardware)
                            .collective_seconds({.kind = Collective::all_gather,
                                                 .bytes = 1 << 28,
                                                 .ranks = kRanks,
                                                 .inside = kRanks / 2});
  EXPECT_NEAR(time_beside(cluster, Collective::all_gather, 2, 1 << 28).total(), alone + gather / 3,
              1e-9 * alone);
  cluster.compute_beside = 1;  // a measured value too
  EXPECT_NEAR(time_beside(cluster, Collective::all_gather, 2, 1 << 28).total(), alone,
              1e-9 * alone);
}

// Compute's tensor collective waits in launch order for a reduction, which waits for a computation
// of 24 ms on its stream. Inside a domain, copy engines reduce.
double tensor_after_reduction(const Cluster& cluster, int domains) {
  StepProgram program;
  program.log = std::make_unique<OpLog>();
  Stream compute{Device{}, "compute", Stream::Mode::measuring};
  Stream scatters{Device{}, "scatters", Stream::Mode::measuring};
  for (Stream* stream : {&compute, &scatters}) {
    stream->set_op_log(program.log.get());
    stream->record();
  }
  const auto place = [&](Group group) -> GroupPlace& {
    return program.groups[static_cast<std::size_t>(group)];
  };
  place(Group::shard_across) = {.ranks = 8, .domains = domains};
  place(Group::tensor) = {.ranks = 8, .domains = 1};
  const auto call = [](Stream& stream, Op::Kind kind, Group group, std::int64_t bytes) {
    Op op;
    op.name = name(Collective::all_to_all);
    op.kind = kind;
    op.group = group;
    op.ranks = 8;
    op.bytes = bytes;
    const OpLog::Call enqueued(stream, op);
  };
  call(scatters, Op::Kind::memory, Group::other, kComputed);
  call(scatters, Op::Kind::collective, Group::shard_across, 1 << 10);
  call(compute, Op::Kind::collective, Group::tensor, 1 << 10);
  program.micro_ends = {program.log->entries().size()};
  return step_time_on(cluster, program).total();
}

TEST(StepTimeOn, calls_across_domains_extend_the_launch_order) {
  const double pack = computed_alone(h100s(8));
  EXPECT_GT(tensor_after_reduction(h100s(8), 8), pack);
  EXPECT_LT(tensor_after_reduction(h100s(8), 1), 0.1 * pack);
  EXPECT_LT(tensor_after_reduction(processors(8), 8), pack) << "there is no order on CPUs";
}

// At the sums of a step, which all ranks make, a rank waits for the slowest.
double wait_for_all(const Cluster& cluster, int ranks) {
  StepProgram program;
  program.log = std::make_unique<OpLog>();
  program.shape.mesh = {.replicate = ranks};
  Stream compute{Device{}, "compute", Stream::Mode::measuring};
  compute.set_op_log(program.log.get());
  Op norm;
  norm.name = "rmsnorm_forward";
  norm.kind = Op::Kind::memory;
  norm.bytes = kComputed;
  { const OpLog::Call call(compute, norm); }
  Op sum;
  sum.name = name(Collective::all_reduce);
  sum.kind = Op::Kind::collective;
  sum.group = Group::all;
  sum.ranks = ranks;
  sum.bytes = 4;
  { const OpLog::Call call(compute, sum); }
  const GroupPlace place{.ranks = ranks, .domains = cluster.nodes};
  program.groups[static_cast<std::size_t>(Group::all)] = place;
  program.micro_ends = {program.log->entries().size()};
  const CallTimes times(cluster, program);
  const double late = times.launch_seconds(norm);  // the GPU begins after the first launch
  return step_time_on(cluster, program).total() - late - times.alone(norm).seconds -
         times.alone(sum).seconds;
}

TEST(StepTimeOn, gpus_wait_for_the_slowest_or_as_long_as_was_measured) {
  Cluster cluster = h100s(128);
  const double alone = computed_alone(cluster);
  EXPECT_NEAR(wait_for_all(cluster, 1024), 0.009 * expected_maximum(1024) * alone, 1e-9);
  cluster.wait_share = 0.02;  // of fewer GPUs
  EXPECT_NEAR(wait_for_all(cluster, 1024), 0.009 * expected_maximum(1024) * alone, 1e-9);
  cluster.wait_share = 0.2;
  EXPECT_NEAR(wait_for_all(cluster, 1024), 0.2 * alone, 1e-9);
  EXPECT_NEAR(wait_for_all(processors(8), 8), 0, 1e-9) << "CPUs wait if it was measured";
}

}  // namespace lockstep::testing::cluster_step_test

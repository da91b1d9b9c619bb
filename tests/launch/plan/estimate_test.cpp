#include "launch/plan/estimate.h"

#include <gtest/gtest.h>
#include <numeric>
#include <tuple>

#include "dist/reduction.h"
#include "dist/topology/topology_placement.h"
#include "launch/plan/cluster_step.h"
#include "launch/plan/cluster_topology.h"
#include "tests/launch/plan/cluster_rig.h"
#include "tests/model/published.h"
#include "tests/testing.h"
#include "tests/train/layout_rig.h"
#include "tests/wording.h"
#include "train/layout.h"
#include "train/run/memory_budget.h"
#include "train/run/run_config.h"
#include "train/step/state_slices.h"

namespace lockstep::testing::estimate_test {

Config with_layout(const Layout& layout) {
  Config config = small_run(layout.mesh.world());
  config.layout.replicate = layout.mesh.size(Axis::replicate);
  config.layout.shard = layout.mesh.size(Axis::shard);
  config.layout.tensor = layout.mesh.size(Axis::tensor);
  config.layout.sharding = layout.sharding;
  return config;
}

// The run trains in exactly the estimated memory.
TEST(Estimate, memory_equals_that_of_a_run) {
  for (const Layout& layout : all_layouts()) {
    const int ranks = layout.mesh.world();
    if (ranks > 4) continue;
    const Config config = with_layout(layout);
    const auto found = estimate(config, processors(ranks));
    const auto sum =
        std::accumulate(found.by_purpose.begin(), found.by_purpose.end(), std::int64_t{0});
    EXPECT_EQ(sum, found.bytes.training.device);
    run_thread_ranks(ranks, [&](World& world) {
      Stream stream(Device{}, "test", Stream::Mode::immediate, 1);
      Arenas arenas(Device{}, found.bytes.training);
      const auto training_of = training_config(config);
      Training training(training_of, stream, arenas, make_comms(world, training_of.mesh));
      training.initialize();
      Arena batches(Device{}, Arena::Memory::host, 1 << 20);
      const Shape shape{config.train.micro_batch, config.train.sequence_length};
      Batch batch;
      for (ConstTensor* t : {&batch.inputs, &batch.targets, &batch.positions}) {
        const Tensor ones = batches.allocate("batch", DType::int32, shape);
        std::fill_n(ones.as<std::int32_t>(), ones.elements(), 1);
        *t = ones;
      }
      training.begin_step(1, 1e-3);
      training.micro_step(batch, true);
      training.finish_step();
      training.evaluate(batch);
      training.evaluated();
      if (world.rank() == 0) {
        EXPECT_EQ(arenas.device.peak_bytes(), found.bytes.training.device) << name_of(layout);
        EXPECT_EQ(arenas.device.peak_by_purpose(), found.by_purpose) << name_of(layout);
      }
    });
  }
}

// Plans are for the first rank.
TEST(Estimate, no_rank_needs_more_memory_than_the_first) {
  for (const Layout& layout : all_layouts()) {
    const auto training = training_config(with_layout(layout));
    const auto first = record_step(training, Device{}, 1).peak;
    for (int rank = 1; rank < layout.mesh.world(); ++rank) {
      const auto other = record_step(training, Device{}, 1, rank).peak;
      EXPECT_LE(other.device, first.device) << name_of(layout) << ", rank " << rank;
      EXPECT_LE(other.pinned, first.pinned) << name_of(layout) << ", rank " << rank;
    }
  }
}

TEST(Estimate, checkpoint_bytes_are_the_sum_of_all_ranks) {
  for (const Layout& layout : all_layouts()) {
    for (const bool is_bf16 : {false, true}) {
      Config config = with_layout(layout);
      config.precision.compute = is_bf16 ? DType::bf16 : DType::fp32;
      std::int64_t owned = 0;
      for (int rank = 0; rank < layout.mesh.world(); ++rank) {
        Stream compute(Device{}, "measure", Stream::Mode::measuring, 1);
        Arenas arenas = Arenas::measure(Device{});
        LoneWorld world(rank, layout.mesh.world());
        Training training(training_config(config), compute, arenas, make_comms(world, layout.mesh));
        for (const auto& slice : state_slices(training.params(), training.optimizer()))
          if (slice.owned && slice.name != "adamw/updates") owned += slice.local.bytes();
      }
      EXPECT_EQ(checkpoint_bytes(config), owned) << name_of(layout);
    }
  }
}

TEST(Estimate, measured_times_replace_prices) {
  const Config config = small_run(1);
  Cluster cluster = processors(1);
  const auto priced = estimate(config, cluster);
  EXPECT_EQ(priced.operators.measured, 0);
  EXPECT_GT(priced.operators.kinds, 10);
  const auto program = record_step(training_config(config), Device{}, 1);
  Json::Array times;
  int calls = 0;
  for (std::size_t i = 0; i < program.log->entries().size(); ++i) {
    const auto& entry = program.log->entries()[i];
    if (entry.what != OpLog::What::op || entry.op.kind == Op::Kind::collective) continue;
    // Three of the four micro-batches are recorded, and the middle one counts twice.
    calls += i >= program.micro_ends[0] && i < program.micro_ends[1] ? 2 : 1;
    Json::Array sizes;
    for (const auto size : entry.op.sizes)
      sizes.emplace_back(size);
    times.emplace_back(Json::Object{{"operator", entry.op.name},
                                    {"type", name(entry.op.dtype)},
                                    {"bytes", entry.op.bytes},
                                    {"calls", 1},
                                    {"seconds", 1e-3},
                                    {"sizes", sizes},
                                    {"flops", entry.op.flops}});
  }
  cluster.operators = OperatorTimes::parse(times);
  const auto measured = estimate(config, cluster);
  EXPECT_EQ(measured.operators.measured, measured.operators.kinds);
  EXPECT_EQ(measured.collectives.kinds, 0) << "of one rank";
  EXPECT_NEAR(measured.time.total(), 1e-3 * calls, 1e-9);
  EXPECT_NE(priced.time.total(), measured.time.total());
}

// Collectives of all ranks are on the compute stream, on CPUs those of tensor ranks too; other
// groups have their own streams.
TEST(Estimate, a_collective_has_the_time_measured_on_its_kind_of_stream) {
  Cluster cluster = h100s(1);
  std::vector<LinkTime> links;
  for (const auto kind : {Collective::all_gather, Collective::all_to_all, Collective::all_reduce})
    for (const bool beside : {false, true})
      links.push_back({.kind = kind,
                       .ranks = 8,
                       .domains = 1,
                       .beside = beside,
                       .times = {{1e12, beside ? 1.0 : 1e-9}}});
  cluster.links = LinkTimes(std::move(links));
  Config config = small_run(8);
  const auto sharded = estimate(config, cluster);
  EXPECT_GT(sharded.time.total(), 1);
  EXPECT_GE(sharded.collectives.kinds, 3);
  EXPECT_EQ(sharded.collectives.measured, sharded.collectives.kinds);
  Cluster two = cluster;
  two.nodes = 2;
  const auto across = estimate(small_run(16), two).collectives;
  EXPECT_LT(across.measured, across.kinds) << "between machines none was measured";
  config.layout.tensor = 8;
  config.layout.shard = 1;
  const auto tensor = estimate(config, cluster).time;
  EXPECT_GT(tensor[Component::communication_tensor], 1);
  EXPECT_LT(tensor[Component::communication_ranks], 1e-3);
  Cluster cpus = processors(8);
  cpus.links = cluster.links;
  const auto tensor_on_cpus = estimate(config, cpus).time;
  EXPECT_GT(tensor_on_cpus[Component::communication_tensor], 0);
  EXPECT_LT(tensor_on_cpus[Component::communication_tensor], 1e-3);
}

TEST(Estimate, compute_is_slower_beside_collectives_if_a_slowdown_was_measured) {
  Cluster cluster = h100s(1);
  cluster.hardware.slowdown = 0;
  const auto alone = estimate(small_run(8), cluster).time;
  cluster.compute_beside = 3;
  const auto beside = estimate(small_run(8), cluster).time;
  EXPECT_GT(beside[Component::products], 1.1 * alone[Component::products]);
  EXPECT_LT(beside[Component::products], 3 * alone[Component::products]);
}

TEST(Estimate, threads_are_those_of_the_cluster_unless_configured) {
  Cluster cluster = processors(2);
  cluster.threads = 5;
  Config config = small_run(2);
  EXPECT_EQ(planned_on(cluster, config).train.threads, 1);
  config.train.threads = 0;
  EXPECT_EQ(planned_on(cluster, config).train.threads, 5);
  EXPECT_EQ(planned_on(h100s(1), config).train.threads, 1);
}

TEST(Estimate, mfu_uses_the_flop_counts_of_the_meter) {
  Config config = small_run(8);
  config.precision.compute = DType::bf16;
  const auto found = estimate(config, h100s(1));
  const auto flops = flops_per_token(config.model, 32);
  const double rate = static_cast<double>(config.train.batch_tokens) / found.time.total();
  EXPECT_DOUBLE_EQ(found.tokens_per_second, rate);
  EXPECT_DOUBLE_EQ(found.mfu.causal, rate * flops.causal / (8 * 989.4e12));
  EXPECT_DOUBLE_EQ(found.mfu.square, rate * flops.square / (8 * 989.4e12));
}

// ClusterTopology and Placement test the messages.
TEST(Estimate, layouts_that_do_not_fit_the_hosts_are_rejected) {
  EXPECT_THROW(estimate(small_run(16), h100s(1)), ConfigError);
  Config across = small_run(16);
  across.model.heads = across.model.kv_heads = 16;
  across.layout.tensor = 16;
  across.layout.shard = 1;
  EXPECT_THROW(estimate(across, h100s(2)), ConfigError);
  Config wrong = small_run(8);
  wrong.layout.shard = 3;
  EXPECT_THROW(estimate(wrong, h100s(1)), ConfigError);
}

TEST(Estimate, tensor_ranks_share_a_domain) {
  const Mesh mesh{.shard = 4, .tensor = 4};
  const auto topology = placed_in(mesh, launched_on(h100s(2), mesh.world()));
  ASSERT_EQ(topology.domains.size(), 2u);
  for (int rank = 0; rank < 16; rank += 4)
    for (int t = 1; t < 4; ++t)
      EXPECT_EQ(topology.domain_of[static_cast<std::size_t>(rank + t)],
                topology.domain_of[static_cast<std::size_t>(rank)]);
}

TEST(Estimate, missing_memory_is_reported_in_bytes) {
  const Config config = small_run(1);
  Cluster cluster = processors(1);
  const auto roomy = estimate(config, cluster);
  EXPECT_TRUE(roomy.fits());
  EXPECT_EQ(roomy.missing_bytes(), 0);
  EXPECT_EQ(roomy.bytes.copies, HostStaging::Copies::owned);
  const auto short_of = [](const Estimate& e) {
    return e.bytes.sum().device + e.bytes.sum().pinned + e.constant_bytes - 1;
  };
  cluster.hardware.hbm_bytes = short_of(roomy);
  const auto tight = estimate(config, cluster);
  EXPECT_TRUE(tight.fits());
  EXPECT_EQ(tight.bytes.copies, HostStaging::Copies::none) << "they do not fit";
  cluster.hardware.hbm_bytes = short_of(tight);
  const auto small = estimate(config, cluster);
  EXPECT_FALSE(small.fits());
  EXPECT_EQ(small.missing_bytes(), 1);
  EXPECT_EQ(small.missing_host_bytes(), 0);
}

std::int64_t sum_of(const std::vector<PlanFile::Memory>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& part) { return sum + part.bytes; });
}

Config offloading(int ranks) {
  Config config = small_run(ranks, 6);
  config.precision.compute = DType::bf16;
  config.train.recompute = Recompute::block;
  config.train.offload_activations = config.train.offload_optimizer = true;
  return config;
}

// The expected bytes, computed by hand:
// - optimizer state: 4 + 8 bytes for each weight of the rank's part;
// - activations: one tensor in bf16 for each layer except the last two;
// - copies for checkpoints: none, because this state is on the host already;
// - batches: four buffers of four tensors of two sequences, and the read buffers of two threads.
TEST(Estimate, host_memory_has_offloaded_state_and_batches_read_ahead) {
  const Config config = offloading(8);
  const auto found = estimate(config, h100s(1));
  const auto parts = host_memory(found);
  EXPECT_EQ(sum_of(parts), found.bytes.sum().pinned);
  const auto of = [&](const std::string& name) {
    for (const auto& part : parts)
      if (part.name == name) return part.bytes;
    return std::int64_t{0};
  };
  const auto weights = static_cast<double>(parameter_count(config.model)) / 8;
  EXPECT_NEAR(static_cast<double>(of("master_weights")), 4 * weights, 0.3 * 4 * weights);
  EXPECT_NEAR(static_cast<double>(of("moments")), 8 * weights, 0.3 * 8 * weights);
  EXPECT_GE(of("moments"), 2 * 4 * parameter_count(config.model) / 8);
  EXPECT_EQ(of("activations"), 4 * (2 * 32 * 64 * 2));
  EXPECT_GE(of("batches"), 4 * 4 * 2 * 32 * 4);
  EXPECT_LT(of("batches"), 2 * 4 * 4 * 2 * 32 * 4);

  Config held_out = config;
  held_out.data.validation = {"held out"};
  EXPECT_EQ(estimate(held_out, h100s(1)).bytes.batches, 2 * found.bytes.batches);

  Config on_gpus = config;
  on_gpus.train.offload_activations = on_gpus.train.offload_optimizer = false;
  const auto copies = estimate(on_gpus, h100s(1));
  EXPECT_EQ(copies.bytes.copies, HostStaging::Copies::owned);
  const auto saved = static_cast<double>(checkpoint_bytes(config)) / 8;
  EXPECT_NEAR(static_cast<double>(copies.bytes.host_staging), saved, 0.3 * saved);
}

TEST(Estimate, missing_host_memory_is_reported_in_bytes_of_a_rank) {
  const Config config = offloading(4);
  Cluster cluster = h100s(1);
  const auto unknown = estimate(config, cluster);
  EXPECT_TRUE(unknown.fits());
  const auto each = unknown.bytes.sum().pinned;
  cluster.host_memory_bytes = 4 * each;  // the node has eight GPUs, and the run uses four
  EXPECT_TRUE(estimate(config, cluster).fits());
  EXPECT_EQ(estimate(config, cluster).missing_host_bytes(), 0);
  cluster.host_memory_bytes = 4 * (each - 5);
  const auto small = estimate(config, cluster);
  EXPECT_FALSE(small.fits());
  EXPECT_EQ(small.missing_bytes(), 0);
  EXPECT_EQ(small.missing_host_bytes(), 5);
  EXPECT_THROW(require_room(planned_on(cluster, config), small.bytes, small.room), ConfigError);
  // Without copies for checkpoints, tensors share a small buffer in turn, and updates wait.
  Config on_gpus = config;
  on_gpus.train.offload_activations = on_gpus.train.offload_optimizer = false;
  cluster.host_memory_bytes = 0;
  const auto copying = estimate(on_gpus, cluster);
  cluster.host_memory_bytes = 4 * copying.bytes.sum().pinned - 1;
  const auto turns = estimate(on_gpus, cluster);
  EXPECT_TRUE(turns.fits());
  EXPECT_EQ(turns.bytes.copies, HostStaging::Copies::none);
  EXPECT_LT(turns.bytes.host_staging, copying.bytes.host_staging);
}

TEST(Estimate, constant_bytes_are_measured_or_reported_as_assumed) {
  const Config config = small_run(8);
  Cluster cluster = h100s(1);
  const auto assumed = estimate(config, cluster);
  EXPECT_FALSE(assumed.constants_measured);
  EXPECT_EQ(assumed.constant_bytes, (std::int64_t{3} << 30) / 2);
  EXPECT_GE(assumed.constant_bytes, kGpuReserveBytes) << "which a run leaves free";
  cluster.constant_bytes = 12345;
  const auto measured = estimate(config, cluster);
  EXPECT_TRUE(measured.constants_measured);
  EXPECT_EQ(measured.constant_bytes, 12345);
  EXPECT_EQ(measured.room.gpu_bytes, cluster.hardware.hbm_bytes - 12345);
  Cluster host = processors(8);
  host.constant_bytes = 0;
  EXPECT_EQ(estimate(config, host).constant_bytes, std::int64_t{32} << 20);
}

// The tokens of a step are read during the step before it: two bytes a token, or four if ids need
// them.
TEST(Estimate, a_step_waits_for_data_that_a_node_reads_slower_than_it_computes) {
  for (const auto& [nodes, vocabulary, bytes] :
       {std::tuple{1, 256, 2.0}, std::tuple{2, 256, 2.0}, std::tuple{1, 70'000, 4.0}}) {
    Config config = small_run(8 * nodes);
    config.model.vocabulary = vocabulary;
    Cluster cluster = h100s(nodes);
    const double step = estimate(config, cluster).time.total();
    EXPECT_EQ(estimate(config, cluster).time[Component::data], 0) << "it is not known how fast";
    const double read = bytes * static_cast<double>(config.train.batch_tokens) / nodes;
    cluster.storage_read_bytes_per_second = read / (3 * step);
    EXPECT_NEAR(estimate(config, cluster).time[Component::data], 2 * step, 1e-9);
    cluster.storage_read_bytes_per_second = read / (0.9 * step);
    EXPECT_EQ(estimate(config, cluster).time[Component::data], 0);
  }
}

// docs/planning.md has these formulas.
TEST(Estimate, a_checkpoint_costs_the_copy_and_write_time_that_steps_do_not_hide) {
  Config config = small_run(8);
  config.checkpoint.every_steps = 5;
  for (const bool is_gpu : {true, false}) {
    Cluster cluster = is_gpu ? h100s(1) : processors(8);
    cluster.hardware.host_bytes_per_second = 1e6;
    if (!is_gpu) cluster.hardware.hbm_bytes_per_second = 2e6;  // a copy reads and writes
    const auto copied = estimate(config, cluster);
    const auto bytes = static_cast<double>(checkpoint_bytes(config));
    const double step = copied.time.total() - copied.time[Component::checkpoint];
    const double hidden = step - copied.time[Component::optimizer];
    EXPECT_NEAR(copied.save.copy_seconds, bytes / 8 / 1e6, 1e-9);
    const double stall = std::max(bytes / 8 / 1e6 - hidden, 0.0);
    EXPECT_NEAR(copied.save.stall_seconds(), stall, 1e-9);
    EXPECT_NEAR(copied.time[Component::checkpoint], stall / 5, 1e-9);
    EXPECT_EQ(copied.save.write_seconds, 0) << "it is not known how fast";
    cluster.storage_write_bytes_per_second = bytes / (7 * step);  // longer than the interval of 5
    const auto late = estimate(config, cluster);
    EXPECT_NEAR(late.save.write_seconds, 7 * step, 1e-6 * step);
    EXPECT_NEAR(late.save.stall_seconds(), stall + 2 * step, 1e-6 * step);
    EXPECT_NEAR(late.time[Component::checkpoint], (stall + 2 * step) / 5, 1e-6 * step);
  }
}

// The first of two nodes has eight of nine ranks.
TEST(Estimate, the_node_with_most_ranks_determines_write_and_read_times) {
  Config config = small_run(9);
  config.layout.sharding = Sharding::none;
  config.train.steps = 1 << 20;
  Cluster cluster = h100s(2);
  cluster.storage_write_bytes_per_second = 1e6;
  const auto found = estimate(config, cluster);
  EXPECT_NEAR(found.save.write_seconds, static_cast<double>(found.save.bytes) * 8 / 9 / 1e6, 1e-9);
  cluster.storage_read_bytes_per_second = 1;
  const double step = found.time.total() - found.time[Component::checkpoint];
  EXPECT_NEAR(estimate(config, cluster).time[Component::data],
              2.0 * static_cast<double>(config.train.batch_tokens) * 8 / 9 - step, 1e-6);
}

// Without a copy, the update waits for the end of the write, and the next save does not wait again.
TEST(Estimate, a_save_without_a_copy_stalls_for_its_write_only_once) {
  Config config = small_run(8);
  config.checkpoint.every_steps = 1;
  Cluster cluster = h100s(1);
  cluster.host_memory_bytes = 1 << 20;
  cluster.storage_write_bytes_per_second = 1e6;
  const auto found = estimate(config, cluster);
  ASSERT_FALSE(found.save.copies);
  EXPECT_NEAR(found.save.stall_seconds(), found.save.write_seconds - found.save.hidden_seconds,
              1e-12);
}

TEST(Estimate, fp8_is_planned_only_on_gpus_that_can_train_with_it) {
  Config config = small_run(8);
  config.precision.compute = DType::bf16;
  const auto refused = [&](const Cluster& cluster, std::initializer_list<std::string> pins) {
    const auto& gpu = cluster.hardware;
    expect_refusal<ConfigError>("launch/estimate", str(gpu.name, ", fp8 rate ", gpu.fp8_flops),
                                pins, [&] { estimate(config, cluster); });
  };
  const auto of = [](const char* gpu) {
    Cluster cluster = h100s(1);
    cluster.hardware = *find_hardware(gpu);
    return cluster;
  };
  config.precision.fp8 = Fp8Matmuls::tensor;
  for (const char* gpu : {"NVIDIA H100", "NVIDIA B200"})
    EXPECT_NO_THROW(estimate(config, of(gpu))) << gpu;
  refused(of("NVIDIA A100-SXM4-80GB"), {"precision.fp8", "8.9", "NVIDIA A100", "8.0", "\"off\""});
  Cluster unknown = h100s(1);
  unknown.hardware.fp8_flops = 0;
  refused(unknown, {"h100s", "hardware.fp8_flops"});
  config.precision.fp8 = Fp8Matmuls::block;
  refused(of("NVIDIA B200"),
          {"precision.fp8", "9.0", "NVIDIA B200", "10.0", "\"tensor\"", "\"off\""});
}

// Constants alone take more than the memory.
TEST(Estimate, missing_bytes_include_constants_beyond_the_memory) {
  Cluster cluster = h100s(1);
  cluster.constant_bytes = 90'000'000'000;
  const auto found = estimate(small_run(8), cluster);
  EXPECT_EQ(found.missing_bytes(),
            found.bytes.sum().device + cluster.constant_bytes - cluster.hardware.hbm_bytes);
}

// 292 MiB by tests/dist/nccl_memory_test.cpp. Ranks on CPUs, and a single rank, have no NCCL.
TEST(Estimate, memory_has_a_part_for_nccl) {
  const auto eight = estimate(small_run(8), h100s(1));
  EXPECT_EQ(eight.bytes.nccl, std::int64_t{292} << 20);
  EXPECT_EQ(eight.needed_bytes(),
            eight.bytes.training.device + eight.bytes.nccl + eight.constant_bytes);
  EXPECT_EQ(estimate(small_run(1), h100s(1)).bytes.nccl, 0);
  EXPECT_EQ(estimate(small_run(8), processors(8)).bytes.nccl, 0);
}

// A GPU that has memory for all but NCCL.
TEST(Estimate, a_run_without_memory_for_nccl_does_not_fit) {
  Cluster cluster = h100s(1);
  const auto whole = estimate(small_run(8), cluster);
  cluster.hardware.hbm_bytes = whole.needed_bytes();
  EXPECT_TRUE(estimate(small_run(8), cluster).fits());
  cluster.hardware.hbm_bytes -= 1;
  const auto tight = estimate(small_run(8), cluster);
  EXPECT_FALSE(tight.fits());
  EXPECT_EQ(tight.missing_bytes(), 1);
}

// docs/parallelism.md: 2 + 4 bytes for each weight, and 12 for each weight of the rank's part.
TEST(Estimate, memory_of_an_8b_model_follows_the_formula) {
  Config config = small_run(8);
  config.model = llama3_8b();
  config.train.sequence_length = 8192;
  config.train.batch_tokens = 64 * 8192;
  config.train.micro_batch = 1;
  config.precision.compute = DType::bf16;
  config.layout.sharding = Sharding::optimizer;
  const auto found = estimate(config, h100s(1));
  const auto of = [&](Purpose purpose) {
    return static_cast<double>(found.by_purpose[static_cast<std::size_t>(purpose)]);
  };
  const double N = 8'030'261'248;
  EXPECT_NEAR(of(Purpose::weights) + of(Purpose::gathered_weights), 2 * N, 0.13 * 2 * N);
  const auto ring = static_cast<double>(ReduceRing::kMostBytes);
  EXPECT_NEAR(of(Purpose::gradients), 4 * N + ring, 0.001 * 4 * N);
  EXPECT_NEAR(of(Purpose::master_weights), 4 * N / 8, 0.01 * 4 * N / 8);
  EXPECT_NEAR(of(Purpose::moments), 8 * N / 8, 0.01 * N);
  EXPECT_EQ(found.save.bytes, 12 * 8'030'261'248);
  EXPECT_FALSE(found.fits());
  EXPECT_GT(found.time[Component::attention], 0);
  EXPECT_GT(found.mfu.causal, 0.3);
  EXPECT_LT(found.mfu.causal, 0.7);
}

}  // namespace lockstep::testing::estimate_test

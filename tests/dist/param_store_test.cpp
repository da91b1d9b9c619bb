#include "dist/param_store.h"

#include <gtest/gtest.h>

#include "core/op_log.h"
#include "kernels/elementwise.h"
#include "tests/support/thread_world.h"
#include "tests/testing.h"
#include "tests/wording.h"

namespace lockstep::testing::param_store_test {

constexpr auto kAligned = ParamStore::kAlignedElements;

// Store holds a padded table, a vector of ones, and a stacked group, in two units.
struct Store {
  Bench b;
  Comms comms = make_comms();
  ParamStore params;
  ParamId table, ones, q, k, v;

  explicit Store(const ParamStore::Options& options) : params(comms, options) {
    const int first = params.add_unit("first"), second = params.add_unit("second");
    table = params.declare(first, {.name = "table",
                                   .shape = {5, 3},
                                   .role = Role::embedding,
                                   .init_std = 0.5f,
                                   .stored_rows = 16});
    ones = params.declare(second,
                          {.name = "ones", .shape = {7}, .role = Role::vector, .init = Init::ones});
    const auto group =
        params.declare_stacked(second, {{.name = "q", .shape = {4, 3}, .init_std = 0.1f},
                                        {.name = "k", .shape = {2, 3}, .init_std = 0.1f},
                                        {.name = "v", .shape = {2, 3}, .init_std = 0.1f}});
    q = group[0], k = group[1], v = group[2];
  }
  // Allocates memory that held other data before.
  void allocate() {
    {
      const Arena::Scope scope(b.arena);
      b.poisoned({1 << 16}, DType::fp32);
    }
    params.allocate(b.arena, b.stream);
  }
};

class ParamStoreTypes : public ::testing::TestWithParam<DType> {};

TEST_P(ParamStoreTypes, a_stacked_group_is_one_matrix_of_its_parts_back_to_back) {
  Store s({.compute_dtype = GetParam()});
  s.allocate();
  s.params.initialize(s.b.stream, 1);
  const auto use = s.params.use(1, s.b.stream);
  const auto stacked = use.stacked(s.q);
  EXPECT_EQ(stacked.shape, (Shape{8, 3}));
  expect_bitwise_equal(stacked.rows(0, 4), use[s.q], "q");
  expect_bitwise_equal(stacked.rows(4, 2), use[s.k], "k");
  expect_bitwise_equal(stacked.rows(6, 2), use[s.v], "v");
  EXPECT_EQ(s.params.stacked_grad(s.q).data, s.params.grad(s.q).data);
  EXPECT_EQ(s.params.stacked_grad(s.q).rows(6, 2).data, s.params.grad(s.v).data);
  EXPECT_THROW(use.stacked(s.k), Error);
  EXPECT_THROW(use[s.table], Error);
}

TEST_P(ParamStoreTypes, segments_hold_each_parameter_once_and_padding_stays_zero) {
  Store s({.compute_dtype = GetParam()});
  s.allocate();
  s.params.initialize(s.b.stream, 7);
  for (const auto& shard : s.params.shards()) {
    std::vector<bool> covered(static_cast<std::size_t>(shard.weight.elements()), false);
    for (const auto& segment : shard.segments) {
      EXPECT_EQ(segment.count, s.params.spec(segment.id).shape.elements());
      for (std::int64_t i = 0; i < segment.count; ++i) {
        const auto at = static_cast<std::size_t>(segment.shard_begin + i);
        EXPECT_FALSE(covered[at]);
        covered[at] = true;
        EXPECT_NE(get(shard.weight, segment.shard_begin + i), 0.0);
      }
    }
    for (std::size_t i = 0; i < covered.size(); ++i)
      if (!covered[i]) {
        EXPECT_EQ(get(shard.weight, static_cast<std::int64_t>(i)), 0.0) << i;
      }
    EXPECT_EQ(shard.segments.size(), s.params.layout().specs(shard.unit).size());
  }
  const auto use = s.params.use(0, s.b.stream);
  EXPECT_EQ(use[s.table].shape, (Shape{16, 3}));
}

TEST_P(ParamStoreTypes, parameters_and_groups_start_aligned_for_vectors) {
  Store s({.compute_dtype = GetParam()});
  s.allocate();
  const auto& segments = s.params.shards()[1].segments;
  EXPECT_EQ(segments[0].shard_begin, 0);
  EXPECT_EQ(segments[1].shard_begin, kAligned);
  EXPECT_EQ(segments[2].shard_begin, kAligned + 12);
  EXPECT_EQ(segments[3].shard_begin, kAligned + 18);
  EXPECT_EQ(s.params.shards()[1].weight.elements(), 2 * kAligned);
}

TEST_P(ParamStoreTypes, an_initial_weight_depends_only_on_seed_and_name) {
  Store s({.compute_dtype = GetParam()});
  s.allocate();
  s.params.initialize(s.b.stream, 3);
  const auto expected = s.b.poisoned({2, 3}, DType::fp32);
  random_normal(s.b.stream, expected,
                {.seed = 3, .purpose = purpose_of("k"), .first_index = 0, .std = 0.1f});
  const auto use = s.params.use(1, s.b.stream);
  const auto rounded = s.b.poisoned({2, 3}, GetParam());
  convert(s.b.stream, rounded, expected);
  expect_bitwise_equal(use[s.k], rounded, "k");
  EXPECT_EQ(doubles(use[s.ones]), Doubles(7, 1.0));
}

INSTANTIATE_TEST_SUITE_P(types, ParamStoreTypes, kFloatTypes, dtype_name);

TEST(ParamStore, master_weights_exist_for_bf16_unless_rounding_is_stochastic) {
  const auto has_master = [](const ParamStore::Options& options) {
    Store s(options);
    s.allocate();
    return bool(s.params.shards()[0].master);
  };
  EXPECT_FALSE(has_master({.compute_dtype = DType::fp32}));
  EXPECT_TRUE(has_master({.compute_dtype = DType::bf16}));
  EXPECT_FALSE(has_master({.compute_dtype = DType::bf16, .stochastic_rounding = true}));
}

TEST(ParamStore, refreshed_weights_are_rounded_master_weights) {
  Store s({.compute_dtype = DType::bf16});
  s.allocate();
  auto& shard = s.params.shards()[0];
  fill(s.b.stream, shard.master, 1.0f / 3);
  s.params.refresh_weights(s.b.stream);
  EXPECT_EQ(get(shard.weight, 0), static_cast<double>(to_float(to_bf16(1.0f / 3))));
}

TEST(ParamStore, a_step_begins_with_zero_gradients_and_sums_micro_batches) {
  Store s({});
  s.allocate();
  s.params.begin_step(s.b.stream);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    s.params.begin_micro_batch(micro_batch == 0);
    s.params.begin_gradients(1, s.b.stream);
    s.params.grad(s.k).as<float>()[1] += 1.5f;
    s.params.reduce(1, s.b.stream, /*last=*/true);
  }
  s.params.finish_backward(s.b.stream);
  const auto& shard = s.params.shards()[1];
  EXPECT_EQ(get(shard.grad, shard.segments[2].shard_begin + 1), 3.0);
  s.params.begin_step(s.b.stream);
  s.params.begin_micro_batch(true);
  s.params.begin_gradients(1, s.b.stream);
  EXPECT_EQ(get(shard.grad, shard.segments[2].shard_begin + 1), 0.0);
}

// The first matmul of a step sets the gradient of its weight, over the values of the step before.
// The gradient of the vector behind it is added to, and begins at zero, like the padding.
TEST(ParamStore, the_first_matmul_of_a_step_sets_the_gradient_of_its_weight) {
  Bench b;
  Comms comms = make_comms();
  ParamStore params(comms, {});
  const int unit = params.add_unit("block");
  const auto weight = params.declare(unit, {.name = "w", .shape = {3, 5}, .grad_is_set = true});
  const auto bias = params.declare(unit, {.name = "b", .shape = {3}, .role = Role::vector});
  Arena arena(Device{}, Arena::Memory::host, 1 << 20);
  params.allocate(arena, b.stream);
  for (int step = 0; step < 2; ++step) {
    params.begin_step(b.stream);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      params.begin_micro_batch(micro_batch == 0);
      params.begin_gradients(unit, b.stream);
      for (int matmul = 0; matmul < 2; ++matmul)
        EXPECT_EQ(params.weight_grad(weight).add, micro_batch > 0 || matmul > 0);
      EXPECT_TRUE(params.weight_grad(bias).add);
      EXPECT_EQ(get(params.grad(bias), 1), 2.0 * micro_batch);
      params.grad(bias).as<float>()[1] += 2.0f;
      fill(b.stream, params.grad(weight), 7.0f);
      params.reduce(unit, b.stream, micro_batch == 1);
    }
    params.finish_backward(b.stream);
    const Tensor all = params.shards()[0].grad;
    double sum = 0;
    for (std::int64_t i = 0; i < all.elements(); ++i)
      sum += get(all, i);
    EXPECT_EQ(sum, 15 * 7.0 + 4.0) << "padding is zero";
  }
}

// The run that chooses matmul algorithms begins steps and does not finish them.
TEST(ParamStore, a_step_that_was_not_finished_leaves_nothing_to_sum) {
  run_thread_ranks(2, [](World& world) {
    Bench b{.threads = 1, .host_bytes = std::int64_t{8} << 20};
    Comms comms = make_comms(world, Mesh{.replicate = 2});
    ParamStore params(comms, {});
    const int unit = params.add_unit("unit");
    const auto id = params.declare(unit, {.name = "weight", .shape = {300, 7}});
    params.allocate(b.arena, b.stream);
    const auto micro_batch = [&](bool first, bool last) {
      params.begin_micro_batch(first);
      params.begin_gradients(unit, b.stream);
      params.grad(id).as<float>()[5] += 1.0f;
      params.reduce(unit, b.stream, last);
    };
    params.begin_step(b.stream);
    micro_batch(true, true);  // waits in a bucket for more
    params.begin_step(b.stream);
    micro_batch(true, false);
    micro_batch(false, true);
    params.finish_backward(b.stream);
    const auto& shard = params.shards()[0];
    EXPECT_EQ(get(shard.grad, shard.segments[0].shard_begin + 5), 4.0);
  });
}

// Two ranks have three micro-batches each. The sums of these numbers are exact.
TEST(ParamStore, gradients_of_shards_are_sums_over_micro_batches_and_ranks) {
  constexpr int kRanks = 2, kMicroBatches = 3;
  const auto value = [](int rank, int micro_batch, std::int64_t i) {
    return static_cast<float>(1000 * rank + 100 * micro_batch + i % 97);
  };
  for (const auto sharding :
       {Sharding::optimizer, Sharding::gradients, Sharding::weights, Sharding::full})
    run_thread_ranks(kRanks, [&](World& world) {
      Bench b{.threads = 1, .host_bytes = std::int64_t{8} << 20};
      Comms comms = make_comms(world, Mesh{.shard = kRanks});
      ParamStore params(comms, {.sharding = sharding});
      const int unit = params.add_unit("unit");
      const auto id = params.declare(unit, {.name = "weight", .shape = {300, 7}});
      params.allocate(b.arena, b.stream);
      params.begin_step(b.stream);
      for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
        params.begin_micro_batch(micro_batch == 0);
        params.begin_gradients(unit, b.stream);
        const auto grad = params.grad(id);
        for (std::int64_t i = 0; i < grad.elements(); ++i)
          grad.as<float>()[i] += value(world.rank(), micro_batch, i);
        params.reduce(unit, b.stream, micro_batch + 1 == kMicroBatches);
      }
      EXPECT_THROW(params.reduce(unit, b.stream, /*last=*/true), Error) << "one more micro-batch";
      params.finish_backward(b.stream);
      const auto& shard = params.shards()[0];
      ASSERT_FALSE(shard.segments.empty());
      for (const auto& segment : shard.segments)
        for (std::int64_t j = 0; j < segment.count; ++j) {
          float expected = 0;
          for (int rank = 0; rank < kRanks; ++rank)
            for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch)
              expected += value(rank, micro_batch, segment.logical_begin + j);
          ASSERT_EQ(shard.grad.as<float>()[segment.shard_begin + j], expected)
              << "sharding " << static_cast<int>(sharding) << ", element " << j;
        }
    });
}

TEST(ParamStore, a_store_of_weights_only_has_no_other_memory_and_cannot_be_trained) {
  Store s({.compute_dtype = DType::bf16});
  s.params.allocate_weights(s.b.arena, s.b.stream);
  EXPECT_EQ(s.b.arena.used_bytes(), kAligned * 2 + 2 * kAligned * 2);
  s.params.initialize(s.b.stream, 5);
  EXPECT_NE(get(s.params.use(0, s.b.stream)[s.table], 0), 0.0);
  EXPECT_THROW(s.params.begin_step(s.b.stream), Error);
}

TEST(ParamStore, access_before_allocate_is_an_error) {
  Store s({});
  EXPECT_THROW((void)s.params.use(0, s.b.stream), Error);
  EXPECT_THROW(s.params.grad(s.table), Error);
  EXPECT_THROW(s.params.stacked_grad(s.q), Error);
  s.allocate();
  EXPECT_TRUE(bool(s.params.grad(s.table)));
  EXPECT_THROW(s.params.grad({.unit = 2, .index = 0}), Error);
}

TEST(ParamStore, parts_that_do_not_stack_to_a_matrix_are_rejected) {
  for (const Shape& other : {Shape{2, 4}, Shape{2}, Shape{2, 3, 1}}) {
    auto comms = make_comms();
    ParamStore params(comms, {});
    const int unit = params.add_unit("unit");
    expect_refusal<
        Error>("dist/param_store", str("stacked ", other), {str("k is ", other), "[4, 3]"}, [&] {
      params.declare_stacked(unit, {{.name = "q", .shape = {4, 3}}, {.name = "k", .shape = other}});
    });
  }
}

// Preflight sets a log of the compute stream for each step, and needs the calls of tensor ranks in
// it.
TEST(ParamStore, calls_of_tensor_ranks_are_in_the_log_that_compute_has_now) {
  for (const auto kind : {Device::Kind::cpu, Device::Kind::cuda}) {
    const Device device{kind};
    Stream compute(device, "compute", Stream::Mode::measuring);
    LoneWorld one_of_two(0, 2);
    Comms comms = make_comms(one_of_two, Mesh{.tensor = 2});
    ParamStore params(comms, {});
    params.add_unit("unit");
    Arena arena = Arena::measure(device);
    params.allocate(arena, compute);
    for (int step = 0; step < 2; ++step) {
      OpLog log;
      compute.set_op_log(&log);
      comms.tensor->barrier(params.tensor_stream(compute));
      compute.set_op_log(nullptr);
      ASSERT_FALSE(log.entries().empty());
      const auto& call = log.entries().back();
      EXPECT_EQ(call.op.group, Group::tensor);
      EXPECT_EQ(log.streams().at(call.stream), kind == Device::Kind::cpu ? "compute" : "tensor");
    }
  }
}

}  // namespace lockstep::testing::param_store_test

#include <array>
#include <gtest/gtest.h>
#include <set>

#include "tests/train/layout_cases.h"

namespace lockstep::testing::layouts_test {

void expect_close(const Assembled& found, const Assembled& expected, double tolerance,
                  const char* what) {
  ASSERT_EQ(found.values().size(), expected.values().size());
  double largest = 0;  // keys' biases have gradients of 0: their values are rounding
  for (const auto& [name, whole] : expected.values())
    for (const double x : whole)
      largest = std::max(largest, std::abs(x));
  for (const auto& [name, whole] : expected.values()) {
    const auto& other = found.values().at(name);
    ASSERT_EQ(other.size(), whole.size()) << name;
    double most = 0;
    for (const double x : whole)
      most = std::max(most, std::abs(x));
    for (std::size_t i = 0; i < whole.size(); ++i)
      ASSERT_NEAR(other[i], whole[i], tolerance * most + 1e-7 * largest)
          << what << " " << name << " " << i;
  }
}

constexpr std::int64_t kSequences = 32;  // of a step, over all ranks

TrainingConfig config_of(const LayoutCase& c) {
  auto config = layout_config(c.family);
  const auto ranks = c.layout.mesh.world() / c.layout.mesh.size(Axis::tensor);
  config.recompute = c.recompute;
  config.global_batch_sequences = kSequences;
  config.micro_batch_sequences = kSequences / (ranks * c.micro_batches);
  return config;
}

Outcome train(const LayoutCase& c, int steps) {
  return train_on(c.layout, config_of(c), steps);
}

// Expects the numbers of one rank. A step of AdamW moves a weight by the learning rate, even if its
// gradient is tiny. Differences of weights by rounding therefore grow with each step.
void expect_trained_as(const Outcome& many, const Outcome& one) {
  EXPECT_EQ(many.initial.values(), one.initial.values());
  EXPECT_EQ(many.tokens, one.tokens);
  expect_close(many.gradients, one.gradients, 1e-5, "gradient");
  ASSERT_EQ(many.losses.size(), one.losses.size());
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i]) << "step " << i + 1;
    EXPECT_NEAR(many.norms[i], one.norms[i], 1e-5 * one.norms[i]) << "step " << i + 1;
  }
}

// All cases of one family on one layout; the sizes of domains alternate.
std::vector<LayoutCase> every_case(Family family, const Layout& layout) {
  std::vector<LayoutCase> cases;
  for (std::size_t i = 0; i < LayoutCase::kRecompute.size(); ++i)
    for (std::size_t k = 0; k < LayoutCase::kMicroBatches.size(); ++k) {
      cases.push_back({family, layout, LayoutCase::kRecompute[i], LayoutCase::kMicroBatches[k]});
      cases.back().layout.per_domain = LayoutCase::kPerDomain[(i + k) % 3];
    }
  return cases;
}

using Pair = std::array<int, 4>;  // two values, each after its position in a case
std::set<Pair> pairs_of(const std::vector<LayoutCase>& cases) {
  std::set<Pair> pairs;
  for (const auto& c : cases) {
    const auto& [replicate, shard, tensor] = c.layout.mesh;
    const std::array values{static_cast<int>(c.family),
                            replicate,
                            shard,
                            tensor,
                            static_cast<int>(c.layout.sharding),
                            static_cast<int>(c.recompute),
                            c.micro_batches,
                            c.layout.per_domain};
    for (int i = 0; i < std::ssize(values); ++i)
      for (int j = 0; j < i; ++j)
        pairs.insert(
            {i, values[static_cast<std::size_t>(i)], j, values[static_cast<std::size_t>(j)]});
  }
  return pairs;
}

TEST(LayoutCases, for_thread_sanitizer_exist) {
  std::set<std::string> names;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const auto& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k)
      names.insert(str(suite.name(), ".", suite.GetTestInfo(k)->name()));
  }
  for (const char* name : kUnderThreadSanitizer)
    EXPECT_TRUE(names.count(name)) << name;
}

TEST(LayoutCases, cover_every_pair_of_values) {
  std::vector<LayoutCase> all;
  for (const auto family : LayoutCase::kFamilies)
    for (const auto& layout : all_layouts())
      for (const auto& c : every_case(family, layout))
        all.push_back(c);
  EXPECT_EQ(pairs_of(every_layout_and_pair()), pairs_of(all));
}

void expect_trains_as_one_rank_does(const LayoutCase& c, int steps) {
  const auto many = train(c, steps);
  expect_trained_as(many, train({.family = c.family}, steps));
  expect_the_same_bits(train(c, steps), many);
}

class Layouts : public LayoutTestWith<LayoutCase> {};

TEST_P(Layouts, trains_as_one_rank_does) {
  expect_trains_as_one_rank_does(GetParam(), 3);
}

INSTANTIATE_TEST_SUITE_P(pairs, Layouts, ::testing::ValuesIn(every_layout_and_pair()),
                         [](const auto& c) { return name_of(c.param); });

class LayoutsFor20Steps : public LayoutTestWith<LayoutCase> {};

TEST_P(LayoutsFor20Steps, train_as_one_rank_does) {
  expect_trains_as_one_rank_does(GetParam(), 20);
}

INSTANTIATE_TEST_SUITE_P(
    some, LayoutsFor20Steps,  // all: EveryLayout
    ::testing::Values(
        LayoutCase{Family::llama3, {Mesh{.shard = 8}, Sharding::optimizer, 2}, Recompute::none, 1},
        LayoutCase{Family::gpt2,
                   {Mesh{.replicate = 2, .shard = 2, .tensor = 2}, Sharding::full, 4},
                   Recompute::cheap,
                   2}),
    [](const auto& c) { return name_of(c.param); });

using FamilyAndLayout = std::pair<Family, Layout>;
class EveryLayout : public LayoutTestWith<FamilyAndLayout> {
 protected:
  static void expect_every_case_trains_as_one_rank_does(Family family) {
    constexpr int kSteps = 20;
    const auto one = train({.family = family}, kSteps);
    for (const LayoutCase& c : every_case(family, GetParam().second)) {
      SCOPED_TRACE(name_of(c));
      const auto many = train(c, kSteps);
      expect_trained_as(many, one);
      expect_the_same_bits(train(c, kSteps), many);
    }
  }
};

TEST_P(EveryLayout, full_trains_as_one_rank_does) {
  expect_every_case_trains_as_one_rank_does(GetParam().first);
}
TEST_P(EveryLayout, soak_trains_the_other_family_as_one_rank_does) {
  expect_every_case_trains_as_one_rank_does(GetParam().first == Family::gpt2 ? Family::llama3
                                                                             : Family::gpt2);
}

INSTANTIATE_TEST_SUITE_P(all, EveryLayout, ::testing::ValuesIn([] {
                           std::vector<FamilyAndLayout> all;  // the families in turn
                           for (const auto& layout : all_layouts())
                             all.emplace_back(LayoutCase::kFamilies[all.size() % 2], layout);
                           return all;
                         }()),
                         [](const auto& c) {
                           return str(name(c.param.first), "_", name_of(c.param.second));
                         });

// A layout with another setting that must not change the numbers of a run.
struct Variant {
  const char* name;
  Layout layout = {};
  Recompute recompute = Recompute::none;
  std::int64_t micro_batch = 1;  // of 8 sequences
  Family family = Family::llama3;
};

class LayoutVariants : public LayoutTestWith<Variant> {};

TEST_P(LayoutVariants, train_as_one_rank_does) {
  const Variant& v = GetParam();
  auto config = layout_config(v.family);
  config.recompute = v.recompute;
  config.micro_batch_sequences = v.micro_batch;
  expect_trained_as(train_on(v.layout, config, 3), train_on({}, config, 3));
}

INSTANTIATE_TEST_SUITE_P(
    all, LayoutVariants,
    ::testing::Values(
        Variant{"a_surplus_of_masked_sequences", {Mesh{.shard = 3}}, Recompute::none, 1},
        Variant{"a_rank_without_sequences",
                {Mesh{.shard = 8}, Sharding::gradients},
                Recompute::none,
                2},
        Variant{"three_replicas", {Mesh{.replicate = 3, .shard = 2}, Sharding::optimizer}},
        Variant{"one_rank_per_domain", {Mesh{.replicate = 2, .shard = 2}, Sharding::optimizer, 1}},
        // One of the two groups that share gradients is on one host, the other on two hosts.
        Variant{"uneven_hosts", {Mesh{.replicate = 2, .shard = 4}, Sharding::full, 0, {4, 2, 2}}},
        Variant{"uneven_replicas", {Mesh{.replicate = 4, .tensor = 2}, Sharding::full, 0, {6, 2}}},
        Variant{"a_host_with_one_rank",
                {Mesh{.replicate = 2, .shard = 4}, Sharding::gradients, 0, {4, 3, 1}}},
        Variant{"qwen3", {Mesh{.shard = 2, .tensor = 2}}, Recompute::block, 1, Family::qwen3},
        Variant{"qwen2", {Mesh{.replicate = 2, .tensor = 4}}, Recompute::none, 1, Family::qwen2},
        Variant{"smollm3", {Mesh{.shard = 4, .tensor = 2}}, Recompute::cheap, 1, Family::smollm3}),
    [](const auto& c) { return c.param.name; });

using LayoutsInBf16 = LayoutTest<::testing::Test>;

// In bf16, gradients are also sent in bf16, with a relative error of at most 2^-8 per term.
// Weights, and with them losses, agree to the precision of bf16.
TEST_F(LayoutsInBf16, train_as_one_rank_does) {
  for (const auto& [rounding, moments] :
       {std::pair{false, DType::fp32}, std::pair{true, DType::bf16}}) {
    auto config = layout_config(Family::llama3);
    config.compute = DType::bf16;
    config.stochastic_rounding = rounding;
    config.moments = moments;
    const auto one = train_on({}, config, 3);
    for (const auto& layout :
         {Layout{Mesh{.shard = 2}}, Layout{Mesh{.replicate = 2, .shard = 2, .tensor = 2}},
          Layout{Mesh{.tensor = 4}},
          Layout{Mesh{.shard = 4, .tensor = 2}, Sharding::optimizer, 4}}) {
      const auto many = train_on(layout, config, 3);
      EXPECT_EQ(many.initial.values(), one.initial.values());
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(many.losses[i], one.losses[i], 2e-3 * one.losses[i]) << name_of(layout);
      expect_close(many.gradients, one.gradients, 0.05, "gradient");
      EXPECT_EQ(train_on(layout, config, 3).weights.values(), many.weights.values());
    }
  }
}

struct ChunksCase {
  const char* name;
  Family family;
  Mesh mesh;
  Recompute recompute = Recompute::none;
  DType compute = DType::fp32;
  Fp8Matmuls fp8 = Fp8Matmuls::off;
};

class LayoutChunks : public LayoutTestWith<ChunksCase> {};

// With layout.tensor_chunks a matmul has fewer rows, but each row of its result is the same sum.
// Only sums over a rank's rows add in another order: the gradients of norms and biases.
TEST_P(LayoutChunks, train_as_one_chunk_does_and_resume_bitwise) {
  const ChunksCase& c = GetParam();
  auto config = layout_config(c.family);
  config.recompute = c.recompute;
  config.compute = c.compute;
  config.sequence_length = config.model.max_positions = 128;  // matmuls of few rows have other bits
  config.fp8 = c.fp8;
  const bool has_blocks = c.fp8 == Fp8Matmuls::block;  // parts of each rank are multiples of 128
  if (c.fp8 != Fp8Matmuls::off) {
    config.model.width = has_blocks ? 256 : 128;
    config.model.head_size = has_blocks ? 32 : 16;
    config.model.mlp_width = 256;
  }
  if (has_blocks) config.sequence_length = config.model.max_positions = 256;
  const Layout layout{.mesh = c.mesh};
  const auto one = train_on(layout, config, 3);
  for (const std::int64_t chunks : {2, 4}) {
    if (has_blocks && chunks == 4) break;
    config.tensor_chunks = chunks;
    const auto many = train_on(layout, config, 3);
    EXPECT_EQ(many.initial.values(), one.initial.values());
    EXPECT_EQ(many.losses[0], one.losses[0]);
    const auto vectors = [&](const std::string& name) {
      return name.find("norm") != std::string::npos || name.find("ln") != std::string::npos ||
             name.find("bias") != std::string::npos;
    };
    for (const auto& [name, values] : one.gradients.values())
      if (!vectors(name)) {
        EXPECT_TRUE(many.gradients.values().at(name) == values) << name << ", chunks " << chunks;
      }
    EXPECT_TRUE(many.gradients.values() != one.gradients.values()) << "rows are in one order";
    expect_close(many.gradients, one.gradients, 1e-5, "gradient");
  }
  expect_a_resume_is_bitwise(layout, config, Against::an_uninterrupted_run);
}

INSTANTIATE_TEST_SUITE_P(
    all, LayoutChunks,
    ::testing::Values(
        ChunksCase{"gpt2", Family::gpt2, {.tensor = 4}},
        ChunksCase{"gpt2_block", Family::gpt2, {.tensor = 2}, Recompute::block},
        ChunksCase{"llama3_cheap", Family::llama3, {.shard = 2, .tensor = 2}, Recompute::cheap},
        ChunksCase{"qwen2", Family::qwen2, {.replicate = 2, .tensor = 2}},
        ChunksCase{"bf16", Family::llama3, {.tensor = 4}, Recompute::none, DType::bf16},
        ChunksCase{
            "fp8", Family::gpt2, {.tensor = 2}, Recompute::cheap, DType::bf16, Fp8Matmuls::tensor},
        ChunksCase{"fp8_blocks",
                   Family::gpt2,
                   {.tensor = 2},
                   Recompute::block,
                   DType::bf16,
                   Fp8Matmuls::block}),
    [](const auto& c) { return c.param.name; });

class LayoutReductions : public LayoutTestWith<Layout> {};

// In the first step both ways to reduce add the same summands. With bf16 and nccl a summand is
// rounded to bf16 at most k more times, each by at most 2^-8 of itself. It is rounded when it is
// sent, at each later level or hop, and when its sum is gathered. In the largest elements of a
// parameter, summands have mostly one sign.
TEST_P(LayoutReductions, train_as_in_fp32_and_resume_bitwise) {
  const Layout& layout = GetParam();
  auto config = layout_config(Family::llama3);
  config.compute = DType::bf16;
  Layout in_fp32 = layout;
  in_fp32.reduce = Reduce::fp32;
  const auto expected = train_on(in_fp32, config, 3), found = train_on(layout, config, 3);
  EXPECT_EQ(found.initial.values(), expected.initial.values());
  EXPECT_EQ(found.losses[0], expected.losses[0]);
  EXPECT_NE(found.gradients.values(), expected.gradients.values());
  const double off = (layout.reduce == Reduce::bf16 ? 4 : 6) * 0x1p-8;  // k 2^-8, at most 4 ranks
  expect_close(found.gradients, expected.gradients, off, "gradient");
  // AdamW moves a weight by the learning rate. A wrong sign of an update costs at most twice that,
  // times a gradient that its error can reach.
  double sum = 0;
  for (const auto& [name, whole] : expected.gradients.values())
    for (const double x : whole)
      sum += std::abs(x);
  for (std::size_t i = 1; i < 3; ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], static_cast<double>(i) * 2 * 1e-3 * off * sum);
  expect_a_resume_is_bitwise(layout, config, Against::an_uninterrupted_run);
}

INSTANTIATE_TEST_SUITE_P(all, LayoutReductions, ::testing::ValuesIn([] {
                           std::vector<Layout> all;
                           for (const auto reduce : {Reduce::bf16, Reduce::nccl})
                             for (const Layout& layout :
                                  {Layout{Mesh{.replicate = 2, .shard = 2}, Sharding::full, 1},
                                   Layout{Mesh{.replicate = 4}, Sharding::full, 2},
                                   Layout{Mesh{.shard = 4, .tensor = 2}, Sharding::optimizer, 2},
                                   Layout{Mesh{.replicate = 2, .shard = 4}, Sharding::gradients,
                                          2}}) {
                               all.push_back(layout);
                               all.back().reduce = reduce;
                             }
                           return all;
                         }()),
                         [](const auto& c) { return name_of(c.param); });

}  // namespace lockstep::testing::layouts_test

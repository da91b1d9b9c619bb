// What a checkpoint says of a run, and what may go on from it.
#include "train/resume.h"

#include <array>
#include <gtest/gtest.h>

#include "checkpoint/checkpointer.h"
#include "dist/thread_world.h"
#include "model/families.h"
#include "tests/files.h"
#include "train/numerics.h"

namespace lockstep::testing::resume_test {

ModelConfig model_of(Family family) {
  ModelConfig m = family_defaults(family);
  m.layers = 8;
  m.width = 64;
  m.heads = m.kv_heads = 4;
  m.head_size = 16;
  m.mlp_width = 128;
  m.vocabulary = 257;
  m.max_positions = 64;
  return m;
}

const DataHistory kHistory{
    {.length = 32,
     .sources = {{.name = "a", .fingerprint = "f", .seed = 1, .weight = 1, .counter = 0}}}};

constexpr auto kSameRows = [](const Stretch::Source& source, std::int64_t /*length*/) {
  return source.counter;
};

constexpr Family kFamilies[] = {Family::gpt2, Family::llama3, Family::qwen2, Family::qwen3,
                                Family::smollm3};

TEST(Resume, progress_comes_back_bit_for_bit) {
  Config config;
  config.model = model_of(Family::qwen3);
  const Json settings = Json::Object{};
  RunProgress progress{
      .step = 7, .first_sample = 1234, .tokens_seen = 99, .good_step = 5, .statistics = {}};
  for (int i = 0; i < 200; ++i) {
    progress.statistics.loss.add(1.0 / (3 + i));
    progress.statistics.grad_norm.add(i * 0.1);
  }
  const RunFacts facts{.config = config, .settings = settings, .history = kHistory, .threads = 2};
  const Json about = Json::parse(describe_run(progress, facts).dump(2), "about");
  check_resume(about, facts, kSameRows, false);
  RunProgress back = progress_in(about);
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.first_sample, 1234);
  EXPECT_EQ(back.tokens_seen, 99);
  EXPECT_EQ(back.good_step, 5);
  for (int i = 0; i < 200; ++i) {
    StepReport a;
    a.loss = 3 + 0.1 * i;
    a.grad_norm = 1.0 / (1 + i);
    StepReport b = a;
    progress.statistics.observe(a);
    back.statistics.observe(b);
    ASSERT_EQ(a.loss_z, b.loss_z) << i;
    ASSERT_EQ(a.grad_norm_z, b.grad_norm_z) << i;
  }
}

// Of a shared file system ranks may see different states.
TEST(Resume, imported_weights_are_there_where_rank_0_sees_them) {
  const TemporaryDirectory temporary;
  Json about;
  about.set("imported_from", "elsewhere");
  Checkpointer(temporary / "imported", {}).save(0, about);
  Checkpointer(temporary / "trained", {}).save(0, Json::Object{});
  const auto found = [&](const char* of_rank_0, const char* of_rank_1) {
    std::array<bool, 2> is_there{};
    run_thread_ranks(2, [&](World& world) {
      const auto path = temporary / (world.rank() == 0 ? of_rank_0 : of_rank_1);
      const auto weights = imported_weights(path, world);
      EXPECT_EQ(weights.value_or(checkpoint_path(path, 0)), checkpoint_path(path, 0));
      is_there[static_cast<std::size_t>(world.rank())] = weights.has_value();
    });
    return is_there;
  };
  using Both = std::array<bool, 2>;
  EXPECT_EQ(found("imported", "imported"), (Both{true, true}));
  EXPECT_EQ(found("imported", "nothing"), (Both{true, true}));
  EXPECT_EQ(found("nothing", "imported"), (Both{false, false}));
  EXPECT_EQ(found("trained", "imported"), (Both{false, false}));
}

TEST(Resume, what_a_gpu_computes_with_is_kept_and_the_cpu_has_none) {
  Config config;
  config.model = model_of(Family::qwen3);
  const Json settings = Json::Object{};
  RunFacts facts{.config = config, .settings = settings, .history = kHistory, .threads = 2};
  EXPECT_EQ(describe_run({}, facts).at("numerics").find("products"), nullptr);
  const NumericsRecord record{.device = "NVIDIA H200",
                              .driver = "13.0",
                              .nccl = "",
                              .products = {.cublaslt = 130002, .algorithms = {{"a", "00ff"}}}};
  facts.device = record.device;
  facts.numerics = &record;
  const Json numerics = describe_run({}, facts).at("numerics");
  EXPECT_EQ(numerics.at("threads").as_integer(), 2);
  const auto back = numerics_in(numerics);
  EXPECT_EQ(back.device, record.device);
  EXPECT_EQ(back.products.cublaslt, record.products.cublaslt);
  EXPECT_EQ(back.products.algorithms, record.products.algorithms);
}

// Two runs of the same settings differ in their bits where one took cuDNN and the other did not.
TEST(Resume, another_computer_or_attention_is_warned_of) {
  Config config;
  config.model = model_of(Family::qwen3);
  const Json settings = Json::Object{};
  RunFacts facts{.config = config, .settings = settings, .history = kHistory, .threads = 2};
  facts.device = "NVIDIA H200";
  const auto before = describe_run({}, facts);
  EXPECT_EQ(before.at("numerics").at("attention").as_string(), "own kernels");
  const auto log = [&] {
    ::testing::internal::CaptureStderr();
    log_changes(before, facts);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log(), "");
  facts.attention = "cuDNN 9.19.0";
  expect_contains(log(), "attention by own kernels, now NVIDIA H200 and attention by cuDNN 9.19.0");
}

TEST(Resume, a_longer_schedule_that_learns_faster_again_is_warned_of) {
  Config config;
  config.model = model_of(Family::qwen3);
  config.schedule.kind = Config::Decay::cosine;
  config.schedule.decay_fraction = 1;
  config.train.steps = 100;
  Json settings;
  settings.set("train.steps", 100);
  RunFacts facts{.config = config, .settings = settings, .history = kHistory, .threads = 2};
  RunProgress progress;
  progress.step = 100;
  const auto before = describe_run(progress, facts);
  const auto log = [&] {
    ::testing::internal::CaptureStderr();
    log_changes(before, facts);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log(), "");
  config.train.steps = 200;
  expect_contains(log(), " at the next: the schedule is that of 200 steps, not 100");
  config.schedule.kind = Config::Decay::constant;
  EXPECT_EQ(log(), "");
  // Within the warmup it grows.
  config.schedule.warmup_steps = 1000;
  config.train.steps = 100;
  EXPECT_EQ(log(), "");
}

TEST(Resume, a_checkpoint_of_weights_alone_is_refused_with_the_way_out) {
  Config config;
  config.model = model_of(Family::llama3);
  Json about, settings;
  about.set("step", 0);
  const RunFacts facts{.config = config, .settings = settings, .history = kHistory, .threads = 2};
  expect_contains(message_of<ConfigError>([&] { check_resume(about, facts, kSameRows, false); }),
                  "--init-from");
}

TEST(SameModel, every_family_is_the_same_as_what_its_checkpoint_says) {
  for (const auto family : kFamilies) {
    auto here = model_of(family);
    const auto there = config_from_huggingface(config_to_huggingface(here), "file");
    check_same_model(there, here, "a file holds");
    here.init_std = 0.5f;  // what weights start from is no part of a model
    check_same_model(there, here, "a file holds");
    here.max_positions = 32;
    if (family == Family::gpt2) {
      EXPECT_THROW(check_same_model(there, here, "a file holds"), ConfigError);
    } else {
      check_same_model(there, here, "a file holds");
    }
  }
}

TEST(SameModel, what_is_said_otherwise_is_the_same) {
  auto here = model_of(Family::smollm3), there = here;
  here.no_rope_every = 0;
  there.no_rope_every = there.layers + 1;  // `transformers` may write 4 for three layers
  check_same_model(there, here, "a file holds");
  check_same_model(here, there, "a file holds");
  there.rope_scaling = RopeScaling{.factor = 1, .original_context = 64};
  check_same_model(there, here, "a file holds");
  there.no_rope_every = there.layers;
  expect_contains(message_of<ConfigError>([&] { check_same_model(there, here, "a file holds"); }),
                  "no_rope_every = ");
}

TEST(SameModel, any_difference_is_refused_by_key) {
  const auto here = model_of(Family::llama3);
  const auto refusal = [&](auto change) {
    auto there = here;
    change(there);
    return message_of<ConfigError>([&] { check_same_model(there, here, "a file holds"); });
  };
  using M = ModelConfig;
  expect_contains(refusal([](M& m) { m.family = Family::qwen3; }), "model.family is llama3");
  expect_contains(refusal([](M& m) { m.heads = 2; }), "heads = 2, but model.heads is 4");
  expect_contains(refusal([](M& m) { m.rope_theta = 7; }), "rope_theta = 7");
  expect_contains(refusal([](M& m) { m.no_rope_every = 4; }), "no_rope_every = 4");
  expect_contains(refusal([](M& m) { m.norm_epsilon = 0.5f; }), "norm_epsilon = 0.5");
  expect_contains(refusal([](M& m) { m.tied_head = !m.tied_head; }), "tied_head = ");
  expect_contains(refusal([](M& m) { m.rope_scaling = RopeScaling{.factor = 3}; }),
                  "rope_scaling_factor = 3, but model.rope_scaling_factor is");
  expect_contains(refusal([](M& m) { m.qkv_bias = true; }), "qkv_bias = 1, but model.qkv_bias is");
}

}  // namespace lockstep::testing::resume_test

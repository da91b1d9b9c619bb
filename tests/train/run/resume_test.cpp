// The record of a run in a checkpoint, and which configurations may resume from it.
#include "train/run/resume.h"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <numbers>

#include "checkpoint/checkpointer.h"
#include "model/families.h"
#include "tests/support/thread_world.h"
#include "tests/train/log.h"
#include "tests/train/training_rig.h"
#include "train/step/numerics.h"

namespace lockstep::testing::resume_test {

constexpr const char* kReader = "train/resume";

ModelConfig model_of(Family family) {
  ModelConfig m = small_model(family, 64, 4);
  m.layers = 8;
  m.vocabulary = 257;
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

struct Resume : ::testing::Test {
  Resume() { config.model = model_of(Family::qwen3); }

  std::string log_of_changes(const Json& before) {
    return stderr_of([&] { log_changes(before, facts); });
  }

  Config config;
  Json settings = Json::Object{};
  RunFacts facts{.config = config, .settings = settings, .history = kHistory, .threads = 2};
};

TEST_F(Resume, progress_is_restored_bit_for_bit) {
  RunProgress progress{.step = 7,
                       .first_sample = 1234,
                       .tokens_seen = 99,
                       .good_step = 5,
                       .statistics = {},
                       .amendments = {rollback_to({3})},
                       .started_from = "/models/a"};
  for (int i = 0; i < 200; ++i) {
    progress.statistics.loss.add(1.0 / (3 + i));
    progress.statistics.grad_norm.add(i * 0.1);
  }
  const Json about = Json::parse(describe_run(progress, facts).dump(2), "about");
  check_resume(about, facts, kSameRows, false);
  RunProgress back = progress_in(about);
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.first_sample, 1234);
  EXPECT_EQ(back.tokens_seen, 99);
  EXPECT_EQ(back.good_step, 5);
  EXPECT_EQ(back.amendments, progress.amendments);
  EXPECT_EQ(back.started_from, "/models/a");
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

// Ranks may see different states of a shared file system.
TEST_F(Resume, imported_weights_exist_for_all_ranks_if_rank_0_sees_them) {
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

TEST_F(Resume, the_numerics_record_of_a_gpu_is_saved_and_a_cpu_has_none) {
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

// Two runs with the same settings differ in their bits if only one of them uses cuDNN.
TEST_F(Resume, a_different_attention_is_a_warning) {
  facts.device = "NVIDIA H200";
  const auto before = describe_run({}, facts);
  EXPECT_EQ(before.at("numerics").at("attention").as_string(), "own kernels");
  EXPECT_EQ(log_of_changes(before), "");
  facts.attention = "cuDNN 9.19.0";
  expect_log(kReader, "another attention", {"NVIDIA H200", "own kernels", "cuDNN 9.19.0"},
             [&] { log_changes(before, facts); });
}

TEST_F(Resume, a_different_reduction_is_a_warning) {
  config.layout.reduce = Reduce::bf16;
  const auto before = describe_run({}, facts);
  EXPECT_EQ(before.at("numerics").at("reduce").as_string(), "bf16");
  EXPECT_EQ(log_of_changes(before), "");
  config.layout.reduce = Reduce::fp32;
  expect_log(kReader, "another reduction", {"layout.reduce is fp32", "bf16", "step 0"},
             [&] { log_changes(before, facts); });
}

// Checkpoints of earlier versions do not name the reduction, which was fp32.
TEST_F(Resume, a_checkpoint_without_a_reduction_has_reduced_in_fp32) {
  Json before = describe_run({}, facts), numerics = Json::Object{};
  for (const auto& [key, value] : before.at("numerics").as_object())
    if (key != "reduce") numerics.set(key, value);
  before.set("numerics", numerics);
  EXPECT_EQ(log_of_changes(before), "");
  config.layout.reduce = Reduce::nccl;
  EXPECT_NE(log_of_changes(before).find("layout.reduce is nccl, but was fp32"), std::string::npos);
}

// Checkpoints of earlier versions do not name the number of chunks, which was 1.
TEST_F(Resume, another_number_of_chunks_is_a_warning_with_several_tensor_ranks) {
  Json before = describe_run({}, facts), numerics = Json::Object{};
  EXPECT_EQ(before.at("numerics").at("tensor_chunks").as_integer(), 1);
  for (const auto& [key, value] : before.at("numerics").as_object())
    if (key != "tensor_chunks") numerics.set(key, value);
  before.set("numerics", numerics);
  config.layout.tensor_chunks = 2;
  EXPECT_EQ(log_of_changes(before), "") << "one tensor rank";
  config.layout.tensor = 2;
  EXPECT_NE(log_of_changes(before).find("layout.tensor_chunks is 2, but was 1"), std::string::npos);
  EXPECT_EQ(log_of_changes(describe_run({}, facts)), "");
}

// Extension has a run of 100 steps, at `step`.
struct Extension : Resume {
  Extension() {
    config.train.steps = 100;
    config.optimizer.learning_rate = 1e-3;
    use(Config::Decay::cosine, 1);
    save();
  }
  void use(Config::Decay kind, double fraction) {
    config.schedule = {.kind = kind, .decay_fraction = fraction, .final_ratio = 0.1};
  }
  void save() {  // the settings up to now are those of the checkpoint
    settings.set("train.steps", config.train.steps);
    settings.set("schedule.kind", str(kDecayNames[static_cast<std::size_t>(config.schedule.kind)]));
    settings.set("schedule.warmup_steps", config.schedule.warmup_steps);
    settings.set("schedule.decay_fraction", config.schedule.decay_fraction);
    settings.set("schedule.final_ratio", config.schedule.final_ratio);
    settings.set("optimizer.learning_rate", config.optimizer.learning_rate);
    settings.set("precision.compute", "fp32");
    about = Json();
    about.set("configuration", settings);
  }
  std::optional<Amendment> at(std::int64_t step, bool extend) {
    progress.step = step;
    return check_extension(about, progress, config, settings, extend);
  }
  void refused(std::int64_t step, const char* name, std::initializer_list<std::string> words) {
    expect_refusal<ConfigError>(kReader, name, words, [&] { at(step, false); });
  }
  Json about;
  RunProgress progress;
};

TEST_F(Extension, an_unchanged_run_has_nothing_to_extend) {
  for (const std::int64_t step : {0, 1, 50, 99, 100})
    EXPECT_FALSE(at(step, false)) << step;
}

TEST_F(Extension, a_longer_run_needs_the_flag_once_its_decay_has_begun_and_continues_at_its_rate) {
  config.train.steps = 200;
  refused(50, "a longer run that decays", {"--extend", "step 100", "step 200", "0.00056"});
  refused(100, "a longer run that has ended", {"has ended at step 100", "--extend", "--run"});
  const auto extended = at(100, true);
  ASSERT_TRUE(extended);
  EXPECT_EQ(extended->at_step, 100);
  const auto before =
      LearningRate(config).peak * (0.1 + 0.45 * (1 + std::cos(0.99 * std::numbers::pi)));
  EXPECT_NEAR(extended->rate, before, 1e-12);
  EXPECT_EQ(extended->peak, extended->rate) << "no warmup, no jump";
  EXPECT_EQ(learning_rate_at(config, {*extended}, 101), extended->rate);
  EXPECT_LT(learning_rate_at(config, {*extended}, 200), 0.11 * extended->rate);
  // A new learning rate is the peak of the extension.
  config.optimizer.learning_rate = 5e-4;
  EXPECT_EQ(at(100, true)->peak, 5e-4);
}

// The same command again: its settings are those of the checkpoint.
TEST_F(Extension, an_extended_run_resumes_without_a_second_extension) {
  config.train.steps = 200;
  progress.amendments.push_back(*at(100, true));
  save();
  for (const bool flag : {false, true})
    EXPECT_FALSE(at(150, flag));
}

TEST_F(Extension, the_stable_part_of_wsd_grows) {
  use(Config::Decay::wsd, 0.2);
  save();
  config.train.steps = 200;
  EXPECT_FALSE(at(79, false));
  refused(80, "a longer run within its decay",
          {"--extend", "learning rate of 0.001", "of step 80 or earlier"});
  refused(100, "a longer run after its decay", {"has ended", "--extend"});
  EXPECT_TRUE(at(90, true));
}

TEST_F(Extension, a_constant_rate_needs_the_flag_only_after_the_end) {
  use(Config::Decay::constant, 0);
  save();
  config.train.steps = 200;
  EXPECT_FALSE(at(99, false));
  refused(100, "a longer run of a constant rate", {"has ended", "--extend"});
  EXPECT_FALSE(at(100, true)) << "its schedule continues";
}

TEST_F(Extension, a_jump_of_the_learning_rate_needs_the_flag) {
  for (const double peak : {2e-3, 0.5e-3, 0.0}) {
    config.optimizer.learning_rate = peak;
    expect_refusal<ConfigError>(kReader, str("a jump to ", peak).c_str(), {"--extend", "step 51"},
                                [&] { at(50, false); });
    EXPECT_FALSE(at(50, true)) << "the new settings hold";
  }
  config.optimizer.learning_rate = 1.05e-3;
  EXPECT_FALSE(at(50, false)) << "no jump";
}

TEST_F(Extension, another_precision_needs_the_flag) {
  settings.set("precision.compute", "bf16");
  refused(50, "another precision", {R"(precision.compute from "fp32" to "bf16")", "--extend"});
  EXPECT_FALSE(at(50, true));
}

TEST_F(Resume, another_start_is_refused_and_the_same_resumes) {
  check_same_start("", config);
  config.train.init_from = "other";
  expect_refusal<ConfigError>(kReader, "other weights for a run from random weights",
                              {"train.init_from is other", "random weights"},
                              [&] { check_same_start("", config); });
  const auto started = std::filesystem::absolute("other").string();
  check_same_start(started, config);
  config.train.init_from = "./x/../other";
  check_same_start(started, config);
  expect_refusal<ConfigError>(kReader, "other weights for a run from weights", {"/models/second"},
                              [&] { check_same_start("/models/second", config); });
  config.train.init_from.clear();
  check_same_start(started, config);
}

TEST_F(Resume, a_checkpoint_of_only_weights_is_rejected_with_a_remedy) {
  Json about;
  about.set("step", 0);
  expect_refusal<ConfigError>(kReader, "weights alone", {"--init-from"},
                              [&] { check_resume(about, facts, kSameRows, false); });
}

TEST(SameModel, every_family_matches_the_config_that_it_writes) {
  for (const auto family : kFamilies) {
    auto here = model_of(family);
    const auto there = config_from_huggingface(config_to_huggingface(here), "file");
    check_same_model(there, here, "a file holds");
    here.init_std = 0.5f;  // initialization is not a property of a trained model
    check_same_model(there, here, "a file holds");
    here.max_positions = 32;
    if (family == Family::gpt2) {
      EXPECT_THROW(check_same_model(there, here, "a file holds"), ConfigError);
    } else {
      check_same_model(there, here, "a file holds");
    }
  }
}

TEST(SameModel, equivalent_values_match) {
  auto here = model_of(Family::smollm3), there = here;
  here.no_rope_every = 0;
  there.no_rope_every = there.layers + 1;  // `transformers` may write 4 for three layers
  check_same_model(there, here, "a file holds");
  check_same_model(here, there, "a file holds");
  there.rope_scaling = RopeScaling{.factor = 1, .original_context = 64};
  check_same_model(there, here, "a file holds");
  there.no_rope_every = there.layers;
  expect_refusal<ConfigError>(kReader, "no_rope_every of as many as layers", {"no_rope_every = "},
                              [&] { check_same_model(there, here, "a file holds"); });
}

TEST(SameModel, any_difference_is_refused_by_key) {
  const auto here = model_of(Family::llama3);
  using Change = void (*)(ModelConfig&);
  const std::pair<const char*, Change> changes[] = {
      {"family", [](auto& m) { m.family = Family::qwen3; }},
      {"heads", [](auto& m) { m.heads = 2; }},
      {"rope_theta", [](auto& m) { m.rope_theta = 7; }},
      {"no_rope_every", [](auto& m) { m.no_rope_every = 4; }},
      {"norm_epsilon", [](auto& m) { m.norm_epsilon = 0.5f; }},
      {"tied_head", [](auto& m) { m.tied_head = !m.tied_head; }},
      {"rope_scaling_factor", [](auto& m) { m.rope_scaling = RopeScaling{.factor = 3}; }},
      {"qkv_bias", [](auto& m) { m.qkv_bias = true; }}};
  for (const auto& [key, change] : changes) {
    auto there = here;
    change(there);
    expect_refusal<ConfigError>(kReader, key, {str("model.", key)},
                                [&] { check_same_model(there, here, "a file holds"); });
  }
}

}  // namespace lockstep::testing::resume_test

// Phases of a run: tables [[phase]], resolved before the first step.
#include <gtest/gtest.h>

#include "launch/config.h"
#include "tests/wording.h"
#include "train/run/amendments.h"

namespace lockstep::testing::phases_test {

const std::string kBase =
    "[model]\nfamily = 'llama3'\nlayers = 2\nwidth = 64\nheads = 4\nvocabulary = 257\n"
    "max_positions = 128\n[data]\ntrain = 'x'\n[optimizer]\nlearning_rate = 1e-3\n"
    "[schedule]\nkind = 'constant'\n"
    "[train]\nsequence_length = 32\nbatch_tokens = 128\nsteps = 100\n";

ResolvedConfig resolve(const std::string& more, const std::vector<std::string>& settings = {}) {
  std::vector<Setting> parsed;
  for (const auto& setting : settings)
    parsed.push_back(parse_setting(setting));
  return resolve_config(kBase + more, "a.toml", parsed);
}

TEST(Phases, have_the_settings_of_those_before_and_their_own) {
  const auto c = resolve(
      "[[phase]]\nfrom_step = 50\ntrain.sequence_length = 64\nmodel.rope_theta = 1e6\n"
      "data.source = [{path = 'a', weight = 1}, {path = 'b', weight = 2}]\n"
      "[[phase]]\nfrom_step = 80\ntrain.batch_tokens = 256\n");
  ASSERT_EQ(c.phases.size(), 2u);
  EXPECT_EQ(c.values.train.sequence_length, 32);
  EXPECT_EQ(c.phases[0].from_step, 50);
  EXPECT_EQ(c.phases[0].values.train.sequence_length, 64);
  EXPECT_EQ(c.phases[0].values.model.rope_theta, 1e6f);
  EXPECT_EQ(c.phases[0].values.data.source.size(), 2u);
  EXPECT_TRUE(c.phases[0].values.data.train.empty());
  EXPECT_EQ(c.phases[0].values.train.batch_tokens, 128);
  EXPECT_EQ(c.phases[1].values.train.sequence_length, 64);
  EXPECT_EQ(c.phases[1].values.train.batch_tokens, 256);
  EXPECT_TRUE(c.phases[0].restarts);
}

// 100 steps of 128 tokens, then 256 tokens a step.
TEST(Phases, lengths_in_tokens_count_the_batches_of_each_phase) {
  const auto c = resolve(
      "[[phase]]\nfrom_tokens = 12_800\ntrain.batch_tokens = 256\n"
      "[[phase]]\nfrom_tokens = 25_601\ntrain.batch_tokens = 512\n",
      {"train.tokens=40000"});
  EXPECT_EQ(c.phases[0].from_step, 100);
  EXPECT_EQ(c.phases[1].from_step, 151);
  // 12,800 + 51 x 256 = 25,856 tokens are seen there; 14,144 are left.
  EXPECT_EQ(c.values.train.steps, 151 + 28);
  EXPECT_EQ(c.phases[1].values.train.steps, 151 + 28);
}

TEST(Phases, a_schedule_begins_at_the_rate_of_its_first_step) {
  const auto c = resolve(
      "[[phase]]\nfrom_step = 40\noptimizer.learning_rate = 2e-3\nschedule.warmup_steps = 10\n"
      "[[phase]]\nfrom_step = 60\nschedule.kind = 'linear'\n");
  EXPECT_FALSE(c.phases[0].restarts);
  EXPECT_FALSE(c.phases[1].restarts);
  const auto rate = [&](std::int64_t step) { return learning_rate_at(c.values, {}, step); };
  EXPECT_EQ(rate(40), 1e-3);
  EXPECT_NEAR(rate(45), 1.5e-3, 1e-15);
  EXPECT_EQ(rate(50), 2e-3);
  EXPECT_EQ(rate(61), 2e-3);
  EXPECT_NEAR(rate(81), 1e-3, 1e-15) << "half of the last 40 steps";
  EXPECT_GT(rate(100), 0);
  // It is the same for each phase.
  EXPECT_EQ(learning_rate_at(c.phases[1].values, {}, 81), rate(81));
}

TEST(Phases, leave_what_the_command_line_sets) {
  const auto c = resolve(
      "[[phase]]\nfrom_step = 50\ntrain.batch_tokens = 256\nschedule.kind = 'linear'\n"
      "eval.tokens = 7\n",
      {"train.batch_tokens=512", "optimizer.learning_rate=2e-3"});
  EXPECT_EQ(c.phases[0].values.train.batch_tokens, 512);
  EXPECT_EQ(c.phases[0].values.eval.tokens, 7);
  EXPECT_TRUE(c.values.rate_phases.empty()) << "one key of the schedule sets all of it";
  EXPECT_EQ(to_toml(c).find("kind = \"linear\""), std::string::npos);
}

// As in a short trial of a long configuration.
TEST(Phases, after_the_end_of_the_run_have_no_effect) {
  const std::string phases = "[[phase]]\nfrom_tokens = 6400\ntrain.batch_tokens = 256\n";
  EXPECT_FALSE(resolve(phases, {"train.steps=50"}).phases[0].restarts);
  EXPECT_TRUE(resolve(phases, {"train.steps=51"}).phases[0].restarts);
  const auto c = resolve(phases, {"train.tokens=640"});
  EXPECT_EQ(c.values.train.steps, 5);
  EXPECT_FALSE(c.phases[0].restarts);
}

// The batch decides the number of warmup steps, but not again in a later phase.
TEST(Phases, keep_the_schedule_of_the_first) {
  const auto c = resolve("[[phase]]\nfrom_step = 5\ntrain.batch_tokens = 256\n",
                         {"schedule.warmup_tokens=1280"});
  EXPECT_EQ(c.values.schedule.warmup_steps, 10);
  EXPECT_EQ(c.phases[0].values.schedule.warmup_steps, 10);
}

TEST(Phases, are_read_back_as_printed) {
  const std::string phases =
      "[[phase]]\nfrom_tokens = 6400\ntrain.sequence_length = 64\nschedule.kind = 'linear'\n"
      "data.source = [{path = ['a', 'c'], weight = 1}, {path = 'b', weight = 2}]\n"
      "[[phase]]\nfrom_step = 80\nlog.sample_prompt = 'a \"b\"'\n";
  const auto first = resolve(phases), again = resolve_config(to_toml(first), "again", {});
  ASSERT_EQ(again.phases.size(), 2u);
  EXPECT_EQ(to_json(again.phases[1].values).dump(), to_json(first.phases[1].values).dump());
  EXPECT_EQ(again.phases[0].from_step, 50);
  for (std::int64_t step = 1; step <= 100; ++step)
    EXPECT_EQ(learning_rate_at(again.values, {}, step), learning_rate_at(first.values, {}, step));
}

// The configuration of a step is the file and the changes up to it.
TEST(LiveChanges, act_as_phases) {
  const auto with = [](const std::string& phases, const Amendments& changes,
                       const std::vector<Setting>& settings = {}) {
    return resolve_config(kBase + phases, "a.toml", settings, 1, DType::fp32, changes);
  };
  const std::string first = "[[phase]]\nfrom_step = 50\ntrain.batch_tokens = 256\n",
                    last = "[[phase]]\nfrom_step = 80\neval.tokens = 9\n";
  const Amendments changes{
      amendment_of(3, "set", 60, {"optimizer.learning_rate=2e-3", "schedule.kind=linear"}),
      amendment_of(4, "set", 50, {"eval.tokens=7", "train.batch_tokens=512"}),
      amendment_of(5, "set", 20, {"optimizer.beta1=0.8"}),
      amendment_of(6, "set", 20, {"optimizer.beta1=0.85"})};
  const auto live = with(first + last, changes);
  const auto written = resolve(
      "[[phase]]\nfrom_step = 20\noptimizer.beta1 = 0.85\n"
      "[[phase]]\nfrom_step = 50\ntrain.batch_tokens = 512\neval.tokens = 7\n"
      "[[phase]]\nfrom_step = 60\noptimizer.learning_rate = 2e-3\nschedule.kind = 'linear'\n" +
      last);
  ASSERT_EQ(live.phases.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(live.phases[i].from_step, written.phases[i].from_step);
    EXPECT_EQ(live.phases[i].restarts, written.phases[i].restarts);
    EXPECT_EQ(to_json(live.phases[i].values).dump(), to_json(written.phases[i].values).dump());
  }
  for (std::int64_t step = 1; step <= 100; ++step)
    EXPECT_EQ(learning_rate_at(live.values, {}, step), learning_rate_at(written.values, {}, step));
  // They are not part of the configuration that the run keeps.
  EXPECT_EQ(to_toml(live), to_toml(resolve(first + last)));
  // They override the command line, unlike phases.
  const auto over =
      with("", changes,
           {parse_setting("optimizer.learning_rate=5e-3"), parse_setting("eval.tokens=11")});
  EXPECT_EQ(learning_rate_at(over.values, {}, 61), 2e-3);
  EXPECT_EQ(over.phases.back().values.eval.tokens, 7);
}

TEST(LiveChanges, are_refused_with_the_reason) {
  const auto refused = [](const std::string& setting, std::initializer_list<std::string> pins) {
    expect_refusal<ConfigError>("launch/live_changes", setting, pins, [&] {
      resolve_config(kBase, "a.toml", {}, 1, DType::fp32, {amendment_of(7, "set", 50, {setting})});
    });
  };
  refused("model.width=128", {"request 7: model.width", "cannot change while the run trains"});
  refused("precision.compute=bf16", {"request 7: precision.compute", "cannot change"});
  refused("train.seed=3", {"request 7: train.seed"});
  refused("train.sequence_length=64", {"[[phase]]"});
  refused("layout.shard=2", {"[[phase]]"});
  refused("optimizer.learning_rat=1", {"optimizer.learning_rate?"});
  refused("optimizer.learning_rate=-1", {"request 7", "at least"});
  refused("train.batch_tokens=100", {"request 7", "train.sequence_length"});
  refused("data.source=[{path = \"y\", weight = 1}]",
          {"request 7", "the sources that the run reads"});
}

TEST(Phases, wrong_tables_are_rejected_by_line) {
  const auto refused = [](const std::string& more, std::initializer_list<std::string> pins) {
    expect_refusal<ConfigError>("launch/phases", more, pins, [&] { resolve(more); });
  };
  const std::string one = "[[phase]]\nfrom_step = 50\n";
  refused(one + "train.sequence_lenght = 64\n", {"a.toml:20", "train.sequence_length?"});
  refused(one + "model.width = 128\n", {"a.toml:20: model.width", "cannot change"});
  refused(one + "precision.compute = 'bf16'\n", {"a.toml:20: precision.compute"});
  refused(one + "train.steps = 7\n", {"a.toml:20: train.steps"});
  refused(one + "train.sequence_length = 33\n",
          {"a.toml:20 (phase 1): train.sequence_length is 33: train.batch_tokens (a.toml:16)"});
  refused(one + "train.sequence_length = 'x'\n", {"a.toml:20", "phase 1", "an integer"});
  refused(one + "schedule.kind = 'x'\n", {"a.toml:20: schedule.kind", "cosine"});
  refused(one + "from_tokens = 7\n", {"phase 1", "from_step", "from_tokens"});
  refused("[[phase]]\ntrain.batch_tokens = 256\n", {"phase 1", "from_step"});
  refused("[[phase]]\nfrom_step = 0\n", {"a.toml:19: from_step", "0"});
  refused(one + one, {"a.toml:21", "phase 2", "in order"});
  refused("[phase]\nfrom_step = 7\n", {"phase"});
}

}  // namespace lockstep::testing::phases_test

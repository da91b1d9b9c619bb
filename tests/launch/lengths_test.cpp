// Lengths in steps, tokens or fractions: two keys of which one holds. And precision.compute =
// "auto".
#include <gtest/gtest.h>

#include "launch/config.h"
#include "tests/wording.h"

namespace lockstep::testing::lengths_test {

const std::string kBase =
    "[model]\nfamily = 'llama3'\nlayers = 2\nwidth = 64\nheads = 4\nvocabulary = 257\n"
    "[data]\ntrain = 'x'\n[train]\nsequence_length = 32\nbatch_tokens = 96\n";

ResolvedConfig resolve(const std::string& more, const std::vector<std::string>& settings = {},
                       DType automatic = DType::fp32) {
  std::vector<Setting> parsed;
  for (const auto& setting : settings)
    parsed.push_back(parse_setting(setting));
  return resolve_config(kBase + more, "a.toml", parsed, 1, automatic);
}

TEST(Lengths, tokens_become_steps_of_the_batch_rounded_up) {
  const auto c = resolve("tokens = 961\n[schedule]\nwarmup_tokens = 100\n").values;
  EXPECT_EQ(c.train.steps, 11);
  EXPECT_EQ(c.schedule.warmup_steps, 2);
  EXPECT_EQ(resolve("tokens = 961\n", {"train.batch_tokens=960"}).values.train.steps, 2);
  EXPECT_EQ(resolve("").values.train.steps, 1000);
}

TEST(Lengths, a_later_layer_replaces_the_other_key) {
  EXPECT_EQ(resolve("steps = 7\n", {"train.tokens=961"}).values.train.steps, 11);
  EXPECT_EQ(resolve("tokens = 961\n", {"train.steps=7"}).values.train.steps, 7);
  EXPECT_EQ(resolve("tokens = 961\n", {"train.steps=7"}).values.train.tokens, 0);
  const auto c =
      resolve("[schedule]\nkind = 'wsd'\ndecay_fraction = 0.5\n", {"schedule.decay_steps=30"});
  EXPECT_EQ(c.values.schedule.decay_steps, 30);
  EXPECT_EQ(c.values.schedule.decay_fraction, 0.2) << "the default, which decay_steps overrules";
  EXPECT_EQ(resolve("[schedule]\ndecay_steps = 30\n", {"schedule.decay_fraction=0.5"})
                .values.schedule.decay_steps,
            0);
}

TEST(Lengths, a_mixture_replaces_the_data_of_an_earlier_layer_and_the_other_way_round) {
  const auto mixed = resolve("", {"data.source=[{path = 'a', weight = 1}]"}).values;
  EXPECT_TRUE(mixed.data.train.empty());
  EXPECT_EQ(mixed.data.source.size(), 1u);
  const std::string source = "[[data.source]]\npath = 'a'\nweight = 1\n";
  const auto base = kBase.substr(0, kBase.find("[data]")) + kBase.substr(kBase.find("[train]"));
  const auto plain =
      resolve_config(base + source, "a.toml", {parse_setting("data.train=b")}).values;
  EXPECT_TRUE(plain.data.source.empty());
  EXPECT_EQ(plain.data.train, std::vector<std::string>{"b"});
  const auto kept = resolve_config(base + source, "a.toml", {parse_setting("data.train=[]")});
  EXPECT_EQ(kept.values.data.source.size(), 1u);
  EXPECT_EQ(config_from_json(to_json(mixed), "saved").values.data.source.size(), 1u);
}

TEST(Lengths, both_keys_in_one_layer_are_rejected) {
  const auto refused = [](const std::string& more, const std::vector<std::string>& settings,
                          std::initializer_list<std::string> pins) {
    expect_refusal<ConfigError>("launch/lengths", more + (settings.empty() ? "" : settings.back()),
                                pins, [&] { resolve(more, settings); });
  };
  refused("steps = 7\ntokens = 961\n", {}, {"a.toml:12: train.steps and train.tokens (a.toml:13)"});
  refused("", {"schedule.warmup_steps=1", "schedule.warmup_tokens=96"},
          {"--set: schedule.warmup_steps and schedule.warmup_tokens (--set)"});
  refused("[schedule]\ndecay_steps = 30\ndecay_fraction = 0.5\n", {},
          {"schedule.decay_fraction and schedule.decay_steps"});
  refused("", {"schedule.decay_steps=1001"},
          {"schedule.decay_steps", "at most train.steps (1000)"});
}

TEST(Lengths, are_read_back_as_printed_and_from_a_checkpoint) {
  const auto first =
      resolve("tokens = 961\n[schedule]\nkind = 'wsd'\nwarmup_tokens = 100\ndecay_steps = 3\n");
  const auto printed = resolve_config(to_toml(first), "again", {});
  EXPECT_EQ(printed.values.train.tokens, 961);
  for (const auto& again : {printed, config_from_json(to_json(first.values), "saved")}) {
    EXPECT_EQ(again.values.train.steps, 11);
    EXPECT_EQ(again.values.schedule.warmup_steps, 2);
    EXPECT_EQ(again.values.schedule.decay_steps, 3);
  }
}

TEST(AutomaticPrecision, is_resolved_and_printed_as_what_it_is) {
  for (const auto type : {DType::fp32, DType::bf16}) {
    const auto c = resolve("[precision]\ncompute = 'auto'\n", {}, type);
    EXPECT_EQ(c.values.precision.compute, type);
    EXPECT_EQ(c.origins.find("precision.compute")->second, "a.toml:13 (auto)");
    EXPECT_EQ(resolve_config(to_toml(c), "again", {}).values.precision.compute, type);
  }
  EXPECT_EQ(resolve("[precision]\ncompute = 'fp32'\n", {"precision.compute=auto"}, DType::bf16)
                .values.precision.compute,
            DType::bf16);
  EXPECT_EQ(resolve("[precision]\ncompute = 'auto'\n", {"precision.compute=fp32"}, DType::bf16)
                .values.precision.compute,
            DType::fp32);
}

}  // namespace lockstep::testing::lengths_test

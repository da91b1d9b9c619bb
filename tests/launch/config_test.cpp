#include "launch/config.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "launch/options.h"
#include "tests/files.h"
#include "train/layout.h"

namespace lockstep::config_test {

constexpr const char* kSmall =
    "[model]\nfamily = 'llama3'\nlayers = 2\nwidth = 64\nheads = 4\nvocabulary = 257\n"
    "[train]\nsequence_length = 32\nbatch_tokens = 96\n[data]\ntrain = 'some/where'\n";

ResolvedConfig resolve(const std::string& more, const std::vector<Setting>& settings = {}) {
  return resolve_config(kSmall + more, "a.toml", settings);
}

std::string refusal(const std::string& more, const std::vector<Setting>& settings = {}) {
  try {
    resolve(more, settings);
    return "accepted";
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.exit_code(), 78);
    return e.what();
  }
}

Setting set(const char* text) {
  return parse_setting(text);
}

TEST(Config, defaults_follow_other_keys) {
  const auto c = resolve("").values;
  EXPECT_EQ(c.model.kv_heads, 4);
  EXPECT_EQ(c.model.head_size, 16);
  EXPECT_EQ(c.model.mlp_width, 192);
  EXPECT_EQ(c.train.micro_batch, 3);
  EXPECT_EQ(c.schedule.warmup_steps, 20);
  EXPECT_EQ(c.data.seed, c.train.seed);
  EXPECT_EQ(resolve("[schedule]\nkind = 'wsd'").values.schedule.decay_fraction, 0.2);
  EXPECT_EQ(resolve("[schedule]\nkind = 'constant'").values.schedule.final_ratio, 1);
}

TEST(Config, the_micro_batch_fills_its_passes_evenly) {
  const auto micro_batch = [](int batch, int length) {
    return resolve("", {{"train.batch_tokens", std::to_string(batch * length), ""},
                        {"train.sequence_length", std::to_string(length), ""}})
        .values.train.micro_batch;
  };
  EXPECT_EQ(micro_batch(6, 256), 6);
  EXPECT_EQ(micro_batch(16, 256), 16);
  EXPECT_EQ(micro_batch(18, 256), 9);  // not 16 and 2
  EXPECT_EQ(micro_batch(5, 8192), 1);
}

TEST(Config, the_family_decides_what_the_model_starts_from) {
  const auto qwen = resolve("", {set("model.family=qwen3")}).values.model;
  EXPECT_TRUE(qwen.qk_norm);
  EXPECT_EQ(qwen.norm_epsilon, 1e-6f);
  EXPECT_EQ(qwen.vocabulary, 257);
  const auto gpt2 = resolve("", {set("model.family=gpt2")}).values.model;
  EXPECT_TRUE(gpt2.learned_positions);
  EXPECT_TRUE(gpt2.tied_head);
  EXPECT_EQ(gpt2.mlp_width, 256);
}

TEST(Config, a_default_that_is_impossible_names_what_it_comes_from) {
  EXPECT_EQ(
      refusal("", {set("model.width=40000")}),
      "a.toml: model.head_size: expected an integer, at least 1 and at most 4096; found the "
      "integer 10000, its default (model.width / model.heads); set it, or what it comes from");
}

TEST(Config, a_size_within_its_range_is_refused_only_where_it_was_set) {
  for (const auto& option : options()) {
    if (option.table() != "model" || !std::isfinite(option.range.most)) continue;
    for (const double value : {option.range.least, option.range.most}) {
      const auto text = std::to_string(static_cast<std::int64_t>(value));
      const auto said = refusal("", {{std::string(option.key), text, "--set"}});
      const bool of_a_default = said.find(", its default (") != said.npos;
      EXPECT_TRUE(of_a_default || !said.starts_with("a.toml: "))
          << option.key << " = " << text << ": " << said;
    }
  }
}

TEST(Config, biases_are_the_familys_unless_said_otherwise) {
  using Biases = std::array<bool, 3>;  // of q, k and v, of attention's output, of the mlp
  const auto biases = [](const std::vector<Setting>& settings) {
    const auto m = resolve("", settings).values.model;
    return Biases{m.qkv_bias, m.out_bias, m.mlp_bias};
  };
  const auto qkv = set("model.qkv_bias=true"), mlp = set("model.mlp_bias=true");
  EXPECT_EQ(biases({set("model.family=gpt2")}), (Biases{true, true, true}));
  EXPECT_EQ(biases({set("model.family=qwen2")}), (Biases{true, false, false}));
  EXPECT_EQ(biases({set("model.family=llama3")}), (Biases{false, false, false}));
  EXPECT_EQ(biases({set("model.family=llama3"), qkv, mlp}), (Biases{true, true, true}));
  EXPECT_EQ(biases({set("model.family=smollm3"), qkv}), (Biases{true, true, false}));
  EXPECT_EQ(refusal("", {set("model.family=qwen3"), mlp}),
            "--set: model.mlp_bias differs from what the family qwen3 has");
}

TEST(Config, the_command_line_wins_over_the_environment_over_the_file_over_defaults) {
  const char* environment[] = {"LOCKSTEP_TRAIN_STEPS=7", "LOCKSTEP_TRAIN_SEED=8", "HOME=/",
                               "LOCKSTEP_CPU=avx2", nullptr};
  auto settings = environment_settings(environment);
  settings.push_back(set("train.steps=9"));
  const auto c = resolve("[log]\nevery_steps = 3\n[optimizer]\nbeta1 = 0.8", settings);
  EXPECT_EQ(c.values.train.steps, 9);
  EXPECT_EQ(c.values.train.seed, 8u);
  EXPECT_EQ(c.values.log.every_steps, 3);
  EXPECT_EQ(c.values.optimizer.beta1, 0.8);
  EXPECT_EQ(c.values.optimizer.beta2, 0.95);
  EXPECT_EQ(c.origins.at("train.steps"), "--set");
  EXPECT_EQ(c.origins.at("train.seed"), "environment LOCKSTEP_TRAIN_SEED");
  EXPECT_EQ(c.origins.at("log.every_steps"), "a.toml:13");
  EXPECT_EQ(c.origins.at("optimizer.beta2"), "default");
  EXPECT_EQ(c.origins.at("model.head_size"), "default: model.width / model.heads");
}

TEST(Config, values_survive_a_checkpoint) {
  const auto c = resolve("[optimizer]\nlearning_rate = 3e-5\n[log]\nsample_prompt = 'a \"b\"\t'",
                         {set("data.train=['x', 'y z']"), set("model.family=qwen3")});
  const auto text = Json::parse(to_json(c).dump(2), "about");
  EXPECT_EQ(text.at("optimizer.learning_rate").as_double(), 3e-5);
  EXPECT_EQ(text.at("model.norm_epsilon").as_double(), 1e-6);
  EXPECT_EQ(text.at("data.train").as_array().size(), 2u);
  const auto back = config_from_json(text, "a checkpoint");
  EXPECT_EQ(to_json(back).dump(), to_json(c).dump());
  EXPECT_EQ(back.values.model, c.values.model);
  EXPECT_EQ(back.values.log.sample_prompt, "a \"b\"\t");
}

TEST(Config, a_prompt_that_no_sample_can_start_from_is_refused) {
  const Setting samples = set("log.sample_every_steps=5"), prompt = set("log.sample_prompt=hello");
  const Setting positions = set("model.max_positions=32");
  EXPECT_EQ(resolve("", {samples, prompt, positions}).values.log.sample_prompt, "hello");
  const auto text = std::string(31, 'x');
  const Setting too_long{"log.sample_prompt", text, "--set"};
  EXPECT_EQ(refusal("", {samples, too_long, positions}),
            "--set: log.sample_prompt is \"" + text +
                "\", expected fewer bytes than model.max_positions (32) less one");
  EXPECT_EQ(refusal("", {too_long, positions}), "accepted");  // no samples
  // Of other tokens it may be fewer, which their tokenizer says when the run starts.
  EXPECT_EQ(refusal("", {samples, too_long, positions, set("model.vocabulary=300")}), "accepted");
}

TEST(Config, numbers_for_prometheus_replace_no_other_file_of_a_run) {
  for (const char* file : {"", "metrics.prom", "/var/lib/node.exporter/a.prom"})
    EXPECT_EQ(refusal("", {{"log.prometheus_file", file, "--set"}}), "accepted") << file;
  for (const char* file : {"metrics.jsonl", "lock", "checkpoints/a", ".prom", "a.prom/"})
    EXPECT_EQ(refusal("", {{"log.prometheus_file", file, "--set"}}),
              str("--set: log.prometheus_file is \"", file,
                  "\", expected a name that ends in "
                  ".prom, as node exporters look for, and as no other file of a run"));
}

TEST(Config, counts_that_a_step_cannot_hold_are_refused) {
  EXPECT_EQ(refusal("", {set("train.steps=1000000001")}),
            "--set: train.steps: expected an integer, at least 1 and at most 1000000000; found the "
            "integer 1000000001");
  EXPECT_NE(refusal("", {set("train.batch_tokens=2147483648")}).find("at most 2147483647"),
            std::string::npos);
}

TEST(Config, an_unknown_key_or_table_is_refused_with_the_nearest) {
  EXPECT_EQ(refusal("[optimizer]\nlearning_rat = 1"),
            "a.toml:13: unknown key optimizer.learning_rat; did you mean "
            "optimizer.learning_rate?");
  EXPECT_EQ(refusal("[eval]\nlearning_rate = 1"),
            "a.toml:13: unknown key eval.learning_rate; did you mean optimizer.learning_rate?");
  EXPECT_EQ(refusal("[shedule]\n"), "a.toml:12: unknown table [shedule]; did you mean schedule?");
  EXPECT_EQ(refusal("[log.more]\n"),
            "a.toml:12: unknown table [log.more]; `lockstep config --reference` lists all");
  EXPECT_EQ(refusal("", {set("train.stesp=1")}),
            "--set: unknown key train.stesp; did you mean train.steps?");
  const char* environment[] = {"LOCKSTEP_TRAIN_STEP=7", nullptr};
  EXPECT_THROW(environment_settings(environment), ConfigError);
  const char* misspelt[] = {"LOCKSTEP_TRIAN_STEPS=4", nullptr};
  EXPECT_EQ(testing::message_of<ConfigError>([&] { environment_settings(misspelt); }),
            "environment LOCKSTEP_TRIAN_STEPS: sets no key; did you mean LOCKSTEP_TRAIN_STEPS?");
  for (const char* other : {"LOCKSTEP_CPU=avx2",
                            "LOCKSTEP_SECRET=ab",
                            "LOCKSTEP_INTERFACE=eth0",
                            "LOCKSTEP_NVML=x",
                            "LOCKSTEP_TEST_SEED=1",
                            "LOCKSTEP_SMALL_SHAPES=1",
                            "LOCKSTEP_RECORD=x",
                            "LOCKSTEP_RECORD_DRIVER=0",
                            "LOCKSTEP_RECORD_GPUS=2",
                            "LOCKSTEP_RECORD_PAIRS=1",
                            "LOCKSTEP_RECORD_ODD_RANK=1",
                            "LOCKSTEP_RECORD_CAPABILITY=10",
                            "LOCKSTEP_LLMC=x",
                            "LOCKSTEP_LLMQ=x",
                            "LOCKSTEP_BUNDLE=x",
                            "LOCKSTEP_SIMT_MIB=1",
                            "LOCKSTEP_SIMT_FASTEST=1",
                            "LOCKSTEP_SIMT_CUBLASLT=1",
                            "LOCKSTEP_SIMT_EPILOGUE=1",
                            "LOCKSTEP_TEST_VARIABLE=1"}) {
    const char* variables[] = {other, nullptr};
    EXPECT_TRUE(environment_settings(variables).empty()) << other;
  }
}

TEST(Config, a_wrong_type_or_an_impossible_value_is_refused_with_what_was_expected) {
  EXPECT_EQ(refusal("[optimizer]\nbeta1 = 'high'"),
            "a.toml:13: optimizer.beta1: expected a number, at least 0 and at most 0.999999; "
            "found the string \"high\"");
  EXPECT_EQ(refusal("[log]\nevery_steps = 0"),
            "a.toml:13: log.every_steps: expected an integer, at least 1; found the integer 0");
  EXPECT_EQ(refusal("[log]\nevery_steps = 1.5"),
            "a.toml:13: log.every_steps: expected an integer, at least 1; found the number 1.5");
  EXPECT_EQ(refusal("[log]\ntensorboard = 1"),
            "a.toml:13: log.tensorboard: expected true or false; found the integer 1");
  EXPECT_EQ(refusal("[schedule]\nkind = 'cosin'"),
            "a.toml:13: schedule.kind: expected one of \"cosine\", \"linear\", \"constant\", "
            "\"wsd\"; found the string \"cosin\"");
  EXPECT_EQ(refusal("[optimizer]\nepsilon = 0"),
            "a.toml:13: optimizer.epsilon: expected a number, more than 0 and at most 1; found "
            "the integer 0");
  for (const char* value : {"nan", "inf", "-1", "1e10"})
    EXPECT_NE(refusal("", {{"optimizer.learning_rate", value, "--set"}}), "accepted") << value;
}

TEST(Config, a_missing_key_is_named) {
  try {
    resolve_config("[model]\nfamily = 'gpt2'\n", "b.toml", {});
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_EQ(std::string(e.what()),
              "b.toml: model.layers is not set: expected an integer, at least 1 and at most 4096");
  }
}

TEST(Config, values_that_do_not_fit_together_are_refused) {
  EXPECT_EQ(refusal("", {set("train.batch_tokens=100")}),
            "--set: train.batch_tokens is 100, expected a multiple of train.sequence_length (32), "
            "such as 96");
  EXPECT_EQ(refusal("", {set("model.kv_heads=3")}),
            "--set: model.kv_heads is 3, expected a divisor of model.heads (4)");
  const std::string width = "a.toml:4: model.width is 64, expected a multiple of model.heads (3)";
  EXPECT_EQ(refusal("", {set("model.heads=3"), set("model.family=qwen3")}),
            width + ", or set model.head_size");
  const auto heads_of_16 = [](const char* family) {
    return refusal("", {set(family), set("model.heads=3"), set("model.head_size=16")});
  };
  EXPECT_EQ(heads_of_16("model.family=qwen3"), "accepted");
  EXPECT_EQ(heads_of_16("model.family=llama3"), width + " for llama3");
  EXPECT_EQ(heads_of_16("model.family=gpt2"), width + " for gpt2");
  EXPECT_EQ(refusal("", {set("model.head_size=7")}),
            "--set: model.head_size is 7, expected an even number, as rotary positions turn pairs");
  EXPECT_NE(refusal("", {set("train.micro_batch=4")}), "accepted");
  EXPECT_NE(refusal("", {set("model.max_positions=16")}), "accepted");
  EXPECT_NE(refusal("", {set("data.train=[]")}), "accepted");
  EXPECT_EQ(refusal("", {set("model.family=gpt2"), set("model.kv_heads=2")}),
            "--set: model.kv_heads is 2, expected model.heads (4) for gpt2");
  EXPECT_NE(refusal("", {set("model.rope_scaling_low=9")}), "accepted");
  for (const char* what : {"train.offload_activations", "train.offload_optimizer"}) {
    const auto offload = set(str(what, "=true").c_str());
    EXPECT_EQ(refusal("", {offload, set("train.cuda_graphs=on")}),
              str("--set: train.cuda_graphs is \"on\", expected \"auto\" or \"off\" with ", what,
                  ", whose copies are no part of a graph"));
    EXPECT_EQ(refusal("", {offload}), "accepted");
  }
}

TEST(Config, blocks_are_kept_gathered_where_weights_are_gathered_again) {
  EXPECT_EQ(resolve("[layout]\nkeep_gathered = 2").values.layout.keep_gathered, 2);
  EXPECT_EQ(refusal("", {set("layout.keep_gathered=3")}),
            "--set: layout.keep_gathered is 3, expected at most model.layers (2)");
  EXPECT_EQ(
      refusal("", {set("layout.keep_gathered=1"), set("layout.sharding=gradients")}),
      "--set: layout.keep_gathered is 1, expected 0 unless layout.sharding is \"full\", which "
      "alone gathers weights more than once a step");
}

TEST(Config, checkpoints_have_partners_and_an_archive_only_where_that_means_something) {
  const auto local = set("checkpoint.local_directory=/dev/shm/run");
  EXPECT_TRUE(
      resolve("[checkpoint]\npartner_copies = true", {local}).values.checkpoint.partner_copies);
  EXPECT_EQ(refusal("", {set("checkpoint.partner_copies=true")}),
            "--set: checkpoint.partner_copies is true, expected checkpoint.local_directory with "
            "it: copies are of what machines have of their own");
  EXPECT_EQ(refusal("", {set("checkpoint.archive_directory=/archive")}),
            "--set: checkpoint.archive_directory is \"/archive\", expected "
            "checkpoint.keep_every_steps with it, which says what goes there");
}

TEST(Config, fp8_is_refused_where_it_has_no_products) {
  const auto bf16 = set("precision.compute=bf16"), tensor = set("precision.fp8=tensor");
  const auto block = set("precision.fp8=block");
  using Gradients = Config::Fp8Gradients;
  EXPECT_EQ(resolve("", {bf16, tensor}).values.precision.fp8_gradients, Gradients::e5m2);
  const std::vector wide{bf16, block, set("model.width=128"), set("model.mlp_width=128"),
                         set("train.batch_tokens=128")};
  EXPECT_EQ(resolve("", wide).values.precision.fp8_gradients, Gradients::e4m3);
  EXPECT_EQ(refusal("", {tensor}),
            "--set: precision.fp8 is \"tensor\", expected \"off\" with precision.compute = "
            "\"fp32\"; or set that to \"bf16\"");
  EXPECT_EQ(
      refusal("", {bf16, block}),
      "--set: precision.fp8 is \"block\", expected \"tensor\" or \"off\": the matrices of this "
      "model are no multiples of 128 (one is 64)");
  EXPECT_EQ(
      refusal("", {bf16, tensor, set("model.mlp_width=40")}),
      "--set: precision.fp8 is \"tensor\", expected \"off\": the matrices of this model are no "
      "multiples of 16 (one is 40)");
  EXPECT_EQ(refusal("", {bf16, tensor, set("train.batch_tokens=120"),
                         set("train.sequence_length=12"), set("train.micro_batch=2")}),
            "--set: train.micro_batch is 2, expected a multiple of 4: with precision.fp8 a "
            "micro-batch holds a multiple of 16 tokens");
  // A stacked matrix of 512 rows, but of k and v each rank would have 64.
  auto ranks = wide;
  for (const char* sizes : {"model.width=256", "model.heads=4", "model.kv_heads=4",
                            "model.head_size=64", "model.mlp_width=512", "layout.tensor=2"})
    ranks.push_back(set(sizes));
  EXPECT_EQ(refusal("", ranks), "accepted");
  ranks.push_back(set("model.kv_heads=2"));
  EXPECT_EQ(refusal("", ranks),
            "--set: layout.tensor is 2, expected 1: with precision.fp8 each rank's part of q, k, v "
            "and of the mlp is a multiple of 128");
}

TEST(Config, a_setting_is_toml_and_a_bare_word_a_string) {
  const auto c = resolve("", {set("data.train=[\"a b\", 'c']"), set("data.validation=x/y-1.bin"),
                              set("schedule.kind=linear"), set("log.sample_prompt=42"),
                              set("optimizer.learning_rate=1"), set("train.init_from=\"q\"")})
                     .values;
  EXPECT_EQ(c.data.train, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(c.data.validation, std::vector<std::string>{"x/y-1.bin"});
  EXPECT_EQ(c.schedule.kind, Config::Decay::linear);
  EXPECT_EQ(c.log.sample_prompt, "42");
  EXPECT_EQ(c.train.init_from, "q");
  EXPECT_EQ(refusal("", {set("data.train=[\"a\"")}), "--set: data.train: not a TOML value: [\"a\"");
  EXPECT_NE(refusal("", {set("log.sample_prompt=\xff")}), "accepted");  // not UTF-8
  EXPECT_THROW(parse_setting("train.steps"), UsageError);
  EXPECT_THROW(parse_setting("=5"), UsageError);
}

TEST(Config, an_array_of_numbers_is_no_name_of_a_file) {
  EXPECT_EQ(refusal("", {set("data.train=[1]")}),
            "--set: data.train: expected a string or an array of strings; found an array of more "
            "than strings");
  EXPECT_EQ(refusal("", {set("data.train={a = 1}")}),
            "--set: data.train: expected a string or an array of strings; found a table");
  EXPECT_EQ(resolve("", {set("data.train='[1]'")}).values.data.train.at(0), "[1]");
}

TEST(Config, what_is_printed_resolves_to_the_same_values) {
  const auto first =
      resolve("[optimizer]\nlearning_rate = 0.1234567890123\n[precision]\nmoments = 'bf16'",
              {set("log.sample_prompt=a \"b\"\n"), set("model.rope_scaling_factor=8")});
  EXPECT_TRUE(first.values.model.rope_scaling);
  const auto second = resolve_config(to_toml(first), "again.toml", {});
  EXPECT_EQ(first.values.model, second.values.model);
  for (const auto& option : options()) {
    EXPECT_EQ(to_toml(option, first.values), to_toml(option, second.values)) << option.key;
    const bool follows =
        !option.rule.empty() && first.origins.find(option.key)->second.starts_with("default");
    const auto& origin = second.origins.find(option.key)->second;
    EXPECT_TRUE(origin.starts_with(follows ? "default: " : "again.toml:")) << option.key;
  }
}

TEST(Config, what_followed_from_other_keys_follows_them_again_when_it_is_read_back) {
  const auto printed = to_toml(resolve("", {set("train.steps=1000")}));
  const auto again =
      resolve_config(printed, "again.toml",
                     {set("train.steps=5000"), set("train.seed=9"), set("model.width=128")});
  EXPECT_EQ(again.values.schedule.warmup_steps, 100);
  EXPECT_EQ(again.values.data.seed, 9u);
  EXPECT_EQ(again.values.model.head_size, 32);
  EXPECT_EQ(again.values.train.batch_tokens, 96);
  EXPECT_TRUE(
      resolve_config(printed, "again.toml", {set("model.family=qwen2")}).values.model.qkv_bias);
}

TEST(Config, the_table_of_a_model_describes_it) {
  const auto model =
      resolve("", {set("model.family=llama3"), set("model.kv_heads=2"), set("model.qkv_bias=true"),
                   set("model.norm_epsilon=3e-6"), set("model.rope_scaling_factor=8")})
          .values.model;
  const auto again = resolve_config(model_to_toml(model) + "[data]\ntrain = 'x'", "m.toml", {});
  EXPECT_EQ(again.values.model, model);
}

constexpr const char* kNoData =
    "[model]\nfamily = 'llama3'\nlayers = 2\nwidth = 64\nheads = 4\nvocabulary = 257\n"
    "[train]\nsequence_length = 32\nbatch_tokens = 96\n";

std::string refused_mixture(const std::string& more, const std::vector<Setting>& settings = {}) {
  try {
    resolve_config(kNoData + more, "a.toml", settings);
    return "accepted";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

TEST(Config, a_mixture_is_tables_in_the_file_or_an_array_of_them_on_the_command_line) {
  const std::vector<DataSource> mixture{{.paths = {"web/*.bin"}, .weight = 0.7},
                                        {.paths = {"code", "more code"}, .weight = 2}};
  const auto from_file = resolve_config(
      str(kNoData, "[data]\nseed = 5\n[[data.source]]\npath = 'web/*.bin'\nweight = 0.7\n",
          "[[data.source]]\npath = ['code', 'more code']\nweight = 2\n"),
      "a.toml", {});
  EXPECT_EQ(from_file.values.data.source, mixture);
  EXPECT_EQ(from_file.values.data.sources(), mixture);
  EXPECT_EQ(from_file.origins.at("data.source"), "a.toml:12");
  const Setting all{"data.source",
                    "[{path='web/*.bin',weight=0.7},{path=['code','more code'],weight=2}]",
                    "--set"};
  EXPECT_EQ(resolve_config(kNoData, "a.toml", {all}).values.data.source, mixture);
  // What a run keeps, and what its checkpoints do, are the same mixture.
  EXPECT_EQ(resolve_config(to_toml(from_file), "again", {}).values.data.source, mixture);
  const auto json = Json::parse(to_json(from_file).dump(2), "about");
  EXPECT_EQ(config_from_json(json, "a checkpoint").values.data.source, mixture);
  const Setting by_epochs{"data.source", "[{path='a',epochs=1},{path='b',epochs=2.5}]", "--set"};
  const auto epochs = resolve_config(kNoData, "a.toml", {by_epochs});
  EXPECT_EQ(epochs.values.data.source[1].epochs, 2.5);
  EXPECT_EQ(resolve_config(to_toml(epochs), "again", {}).values.data.source,
            epochs.values.data.source);
  EXPECT_EQ(resolve("").values.data.sources(),
            (std::vector<DataSource>{{.paths = {"some/where"}}}));
}

TEST(Config, a_mixture_has_no_more_sources_than_a_checkpoint_may_hold) {
  const auto with = [](int count) {
    std::string tables;
    for (int i = 0; i < count; ++i)
      tables += str("[[data.source]]\npath = '", i, "'\nweight = 1\n");
    return tables;
  };
  EXPECT_EQ(resolve_config(kNoData + with(256), "a.toml", {}).values.data.source.size(), 256u);
  EXPECT_NE(refused_mixture(with(257)).find(
                "257 tables, expected at most 256; path may be a list of datasets"),
            std::string::npos);
}

TEST(Config, a_mixture_that_cannot_be_is_refused_by_line_and_key) {
  const std::string a = "[[data.source]]\npath = 'a'\nweight = 1\n";
  EXPECT_EQ(refused_mixture(a + "[[data.source]]\npath = 'b'\nwieght = 1\n"),
            "a.toml:15: data.source: unknown key wieght; did you mean weight?");
  EXPECT_EQ(refused_mixture(a + "[[data.source]]\npath = 'b'\nweight = 0\n"),
            "a.toml:15: data.source: weight: expected a number, more than 0 (leave the table out "
            "for none); found the integer 0");
  EXPECT_EQ(refused_mixture(a + "[[data.source]]\npath = 5\nweight = 1\n"),
            "a.toml:14: data.source: path: expected a string or an array of strings; found the "
            "integer 5");
  EXPECT_EQ(refused_mixture(a + "[[data.source]]\nweight = 1\n"),
            "a.toml:14: data.source: table 2 has no path");
  EXPECT_NE(refused_mixture(a + "[[data.source]]\npath = 'b'\n")
                .find("a.toml:14: data.source: expected either weight or epochs beside path \"b\""),
            std::string::npos);
  EXPECT_NE(
      refused_mixture(a + "[[data.source]]\npath = 'b'\nepochs = 1\n")
          .find("data.source: expected weight beside path \"b\", as the tables before it "
                "have: all are given by weight, or all by epochs (which is a weight of epochs "
                "x samples)"),
      std::string::npos);
  EXPECT_EQ(refused_mixture("[[data.sources]]\npath = 'a'\nweight = 1\n"),
            "a.toml:10: unknown key data.sources; did you mean data.source?");
  EXPECT_EQ(refused_mixture("", {set("data.source=5")}),
            "--set: data.source: expected tables of path, and weight or epochs; found the integer "
            "5");
  EXPECT_EQ(refused_mixture("[data]\ntrain = 'x'\n" + a),
            "a.toml:12: data.source and data.train (a.toml:11) are both set; a mixture names all "
            "datasets in data.source");
  EXPECT_EQ(refused_mixture(""),
            "a.toml: neither data.train nor tables [[data.source]] name a dataset");
  EXPECT_EQ(refusal("", {set("data.shuffle_shards=2"), set("data.rows=packed")}),
            "--set: data.shuffle_shards is 2, expected 0 unless data.rows is \"windows\"");
}

TEST(Config, a_warmup_longer_than_the_run_is_refused) {
  EXPECT_EQ(
      refusal("[schedule]\nwarmup_steps = 100", {set("train.steps=99")}),
      "a.toml:13: schedule.warmup_steps is 100, expected at most train.steps (99); without the "
      "key it is 2% of them");
}

TEST(Config, a_long_list_is_printed_so_that_it_can_be_read_back) {
  std::string list;
  for (int i = 0; i < 200; ++i)
    list += "'/a/directory/of/some/length/with/many/shards/train_" + std::to_string(i) + ".bin',\n";
  const auto first = resolve("validation = [\n" + list + "]\n");
  ASSERT_EQ(first.values.data.validation.size(), 200u);
  const auto text = to_toml(first);
  EXPECT_EQ(resolve_config(text, "printed", {}).values.data.validation,
            first.values.data.validation);
  EXPECT_EQ(config_from_json(to_json(first), "checkpoint").values.data.validation,
            first.values.data.validation);
  EXPECT_NE(text.find(".bin\",\n]  "), std::string::npos) << text;
}

TEST(Config, every_option_is_described_and_holds_its_default) {
  for (const auto& option : options()) {
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_EQ(option.help.back(), '.') << option.key;
    EXPECT_EQ(find_option(option.key), &option) << "twice: " << option.key;
    auto c = resolve("").values;
    const auto value = parse_toml_value(to_toml(option, c));
    ASSERT_TRUE(value) << option.key;
    EXPECT_EQ(assign(option, c, *value), "") << option.key;
  }
}

TEST(Config, the_shipped_files_describe_the_published_models) {
  const std::map<std::string, std::int64_t> parameters{
      {"gpt2_124m", 124'439'808},   {"llama3_8b", 8'030'261'248},  {"llama3_70b", 70'553'706'496},
      {"quickstart", 3'148'544},    {"qwen2.5_0.5b", 494'032'768}, {"qwen3_0.6b", 596'049'920},
      {"smollm3_3b", 3'075'098'624}};
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (file.is_directory()) continue;  // clusters
    const auto c = load_config(file.path(), {});
    const auto expected = parameters.find(file.path().stem().string());
    ASSERT_NE(expected, parameters.end()) << file.path();
    EXPECT_EQ(parameter_count(c.values.model), expected->second) << file.path();
    ++files;
  }
  EXPECT_EQ(files, parameters.size());
}

// "[layout]  # 64 ranks: ..." in a shipped file; 0 where it has no such table.
int named_ranks(const std::filesystem::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("[layout]")) continue;
    const auto comment = line.find("# ");
    return comment == std::string::npos ? -1 : std::stoi(line.substr(comment + 2));
  }
  return 0;
}

TEST(Config, the_layouts_of_shipped_files_are_for_the_ranks_that_they_name) {
  int layouts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.is_directory()) continue;
    const int ranks = named_ranks(entry.path());
    if (ranks == 0) continue;
    const auto c = load_config(entry.path(), {}, ranks).values;
    EXPECT_EQ(c.layout.ranks, ranks);
    EXPECT_NO_THROW(mesh_of(c.layout, ranks)) << entry.path();
    EXPECT_NO_THROW(require_divisible(c.model, c.layout.tensor)) << entry.path();
    // Each rank has as much to do, in whole micro-batches.
    const auto sequences = c.train.batch_tokens / c.train.sequence_length;
    const auto data_ranks = ranks / c.layout.tensor;
    EXPECT_EQ(sequences % (data_ranks * c.train.micro_batch), 0) << entry.path();
    ++layouts;
  }
  EXPECT_GE(layouts, 6);
}

TEST(Config, an_axis_that_is_not_set_follows_from_the_ranks_and_is_said) {
  struct Case {
    int ranks;
    const char* layout;
    std::array<std::int64_t, 3> axes;  // replicate, shard, tensor
    const char* words;
  };
  const std::vector<Case> cases{
      {16, "", {1, 16, 1}, ""},
      {16, "replicate = 2\nshard = 8", {2, 8, 1}, ""},
      {32,
       "replicate = 2",
       {2, 16, 1},
       "layout.shard is not set: it is 16 (32 ranks / (layout.replicate 2 x layout.tensor 1)); a "
       "copy of the model is on 2 hosts"},
      {32,
       "tensor = 2",
       {1, 16, 2},
       "layout.shard is not set: it is 16 (32 ranks / (layout.replicate 1 x layout.tensor 2)); a "
       "copy of the model is on 4 hosts"},
      {32,
       "shard = 4\ntensor = 2",
       {4, 4, 2},
       "layout.replicate is not set: it is 4 (32 ranks / (layout.shard 4 x layout.tensor 2)); a "
       "copy of the model is on 1 host"},
      {1, "shard = 8", {1, 8, 1}, ""}};
  for (const auto& [ranks, layout, axes, words] : cases) {
    const auto config = resolve_config(str(kSmall, "[layout]\n", layout), "a.toml", {}, ranks);
    const auto& l = config.values.layout;
    EXPECT_EQ((std::array{l.replicate, l.shard, l.tensor}), axes) << layout;
    EXPECT_EQ(derived_axis_in_words(config, 8), words) << layout;
  }
}

TEST(Config, the_page_about_it_is_up_to_date) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/docs/configuration.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == configuration_reference())
      << "docs/configuration.md differs; write it anew: lockstep config --reference > "
         "docs/configuration.md";
}

}  // namespace lockstep::config_test

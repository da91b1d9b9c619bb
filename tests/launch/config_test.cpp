#include "launch/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>

#include "launch/options.h"
#include "tests/wording.h"
#include "train/layout.h"

namespace lockstep::testing::config_test {

const std::string kNoData =
    "[model]\nfamily = 'llama3'\nlayers = 2\nwidth = 64\nheads = 4\nvocabulary = 257\n"
    "[train]\nsequence_length = 32\nbatch_tokens = 96\n";
const std::string kSmall = kNoData + "[data]\ntrain = 'some/where'\n";

using Settings = std::vector<std::string>;  // "table.key=value", as of --set

ResolvedConfig resolve_text(const std::string& text, const Settings& settings = {}) {
  std::vector<Setting> parsed;
  for (const auto& setting : settings)
    parsed.push_back(parse_setting(setting));
  return resolve_config(text, "a.toml", parsed);
}
ResolvedConfig resolve(const std::string& more, const Settings& settings = {}) {
  return resolve_text(kSmall + more, settings);
}
Config with(const Settings& settings) {
  return resolve("", settings).values;
}

// kSmall with `more` and `settings` is a configuration error. They are the name of its message.
void refused(const std::string& more, const Settings& settings,
             std::initializer_list<std::string> pins, const std::string& base = kSmall) {
  std::string name = more.empty() && settings.empty() ? "(nothing)" : more;
  for (const auto& setting : settings)
    name += str(name.empty() ? "" : " ", "--set ", setting);
  expect_refusal<ConfigError>("launch/config", name, pins,
                              [&] { resolve_text(base + more, settings); });
}

TEST(Config, an_integer_may_have_an_exponent) {
  EXPECT_EQ(with({"train.steps=1e3"}).train.steps, 1000);
  EXPECT_EQ(with({"train.steps=2.5e3"}).train.steps, 2500);
  refused("", {"train.steps=1e-3"}, {"--set: train.steps", "an integer", "0.001"});
  refused("", {"data.cache_bytes=1e300"}, {"--set: data.cache_bytes", "1e+300"});
  refused("", {"train.seed=9007199254740993.0"}, {});
}

TEST(Config, an_error_about_two_keys_begins_with_the_one_that_was_set) {
  refused("", {"model.heads=7"},
          {"--set: model.heads is 7: model.width (a.toml:4) is 64", "model.heads (7)"});
  refused("", {"model.heads=7", "model.width=64"}, {"--set: model.width is 64, expected"});
}

TEST(Config, defaults_follow_other_keys) {
  const auto c = with({});
  EXPECT_EQ(c.model.kv_heads, 4);
  EXPECT_EQ(c.model.head_size, 16);
  EXPECT_EQ(c.model.mlp_width, 192);
  EXPECT_EQ(c.train.micro_batch, 3);
  EXPECT_EQ(c.schedule.warmup_steps, 20);
  EXPECT_EQ(c.data.seed, c.train.seed);
  EXPECT_EQ(resolve("[schedule]\nkind = 'wsd'").values.schedule.decay_fraction, 0.2);
  EXPECT_EQ(resolve("[schedule]\nkind = 'constant'").values.schedule.final_ratio, 1);
}

TEST(Config, the_default_micro_batch_divides_the_batch_evenly) {
  const auto micro_batch = [](int batch, int length) {
    return with({str("train.batch_tokens=", batch * length), str("train.sequence_length=", length)})
        .train.micro_batch;
  };
  EXPECT_EQ(micro_batch(6, 256), 6);
  EXPECT_EQ(micro_batch(16, 256), 16);
  EXPECT_EQ(micro_batch(18, 256), 9);  // not 16 and 2
  EXPECT_EQ(micro_batch(5, 8192), 1);
}

TEST(Config, the_family_sets_the_defaults_of_the_model) {
  const auto qwen = with({"model.family=qwen3"}).model;
  EXPECT_TRUE(qwen.qk_norm);
  EXPECT_EQ(qwen.norm_epsilon, 1e-6f);
  EXPECT_EQ(qwen.vocabulary, 257);
  const auto gpt2 = with({"model.family=gpt2"}).model;
  EXPECT_TRUE(gpt2.learned_positions);
  EXPECT_TRUE(gpt2.tied_head);
  EXPECT_EQ(gpt2.mlp_width, 256);
}

TEST(Config, an_impossible_default_is_an_error_with_its_rule) {
  refused("", {"model.width=40000"}, {"a.toml", "model.head_size", "4096", "10000"});
}

TEST(Config, a_size_within_its_range_is_rejected_only_at_the_place_that_set_it) {
  for (const auto& option : options()) {
    if (option.table() != "model" || !std::isfinite(option.range.most)) continue;
    for (const double value : {option.range.least, option.range.most}) {
      const auto text = std::to_string(static_cast<std::int64_t>(value));
      std::string said;
      try {
        with({str(option.key, "=", text)});
      } catch (const ConfigError& error) {
        said = error.what();
      }
      const bool of_a_default = std::ranges::any_of(options(), [&](const auto& other) {
        return !other.rule.empty() && said.find(str("(", other.rule, ")")) != said.npos;
      });
      EXPECT_TRUE(of_a_default || !said.starts_with("a.toml: "))
          << option.key << " = " << text << ": " << said;
    }
  }
}

TEST(Config, biases_are_those_of_the_family_unless_configured) {
  using Biases = std::array<bool, 3>;  // of q, k and v; attention output; MLP
  const auto biases = [](const Settings& settings) {
    const auto m = with(settings).model;
    return Biases{m.qkv_bias, m.out_bias, m.mlp_bias};
  };
  const auto qkv = "model.qkv_bias=true", mlp = "model.mlp_bias=true";
  EXPECT_EQ(biases({"model.family=gpt2"}), (Biases{true, true, true}));
  EXPECT_EQ(biases({"model.family=qwen2"}), (Biases{true, false, false}));
  EXPECT_EQ(biases({"model.family=llama3"}), (Biases{false, false, false}));
  EXPECT_EQ(biases({"model.family=llama3", qkv, mlp}), (Biases{true, true, true}));
  EXPECT_EQ(biases({"model.family=smollm3", qkv}), (Biases{true, true, false}));
  refused("", {"model.family=qwen3", mlp}, {"--set: model.mlp_bias", "qwen3"});
}

TEST(Config, the_command_line_overrides_the_environment_which_overrides_the_file) {
  const char* environment[] = {"LOCKSTEP_TRAIN_STEPS=7", "LOCKSTEP_TRAIN_SEED=8", "HOME=/",
                               "LOCKSTEP_CPU=avx2", nullptr};
  auto settings = environment_settings(environment);
  settings.push_back(parse_setting("train.steps=9"));
  const auto c = resolve_config(str(kSmall, "[log]\nevery_steps = 3\n[optimizer]\nbeta1 = 0.8"),
                                "a.toml", settings);
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

TEST(Config, values_read_back_from_a_checkpoint) {
  const auto c = resolve("[optimizer]\nlearning_rate = 3e-5\n[log]\nsample_prompt = 'a \"b\"\t'",
                         {"data.train=['x', 'y z']", "model.family=qwen3"});
  const auto text = Json::parse(to_json(c.values).dump(2), "about");
  EXPECT_EQ(text.at("optimizer.learning_rate").as_double(), 3e-5);
  EXPECT_EQ(text.at("model.norm_epsilon").as_double(), 1e-6);
  EXPECT_EQ(text.at("data.train").as_array().size(), 2u);
  const auto back = config_from_json(text, "a checkpoint");
  EXPECT_EQ(to_json(back.values).dump(), to_json(c.values).dump());
  EXPECT_EQ(back.values.model, c.values.model);
  EXPECT_EQ(back.values.log.sample_prompt, "a \"b\"\t");
}

TEST(Config, a_prompt_too_long_for_a_sample_is_rejected) {
  const auto samples = "log.sample_every_steps=5", positions = "model.max_positions=32";
  EXPECT_EQ(with({samples, "log.sample_prompt=hello", positions}).log.sample_prompt, "hello");
  const auto too_long = "log.sample_prompt=" + std::string(31, 'x');
  refused("", {samples, too_long, positions}, {"--set: log.sample_prompt", "(32)"});
  EXPECT_NO_THROW(with({too_long, positions}));  // no samples
  // Another tokenizer may need fewer tokens. The run checks the prompt at its start.
  EXPECT_NO_THROW(with({samples, too_long, positions, "model.vocabulary=300"}));
}

TEST(Config, the_prometheus_file_replaces_no_other_file_of_a_run) {
  for (const char* file : {"", "metrics.prom", "/var/lib/node.exporter/a.prom"})
    EXPECT_NO_THROW(with({str("log.prometheus_file=", file)})) << file;
  for (const char* file : {"metrics.jsonl", "lock", "checkpoints/a", ".prom", "a.prom/"})
    refused("", {str("log.prometheus_file=", file)}, {"--set", "log.prometheus_file", file});
}

TEST(Config, counts_beyond_their_range_are_rejected) {
  refused("", {"train.steps=1000000001"}, {"--set: train.steps", "1000000000", "1000000001"});
  refused("", {"train.batch_tokens=2147483648"}, {"--set: train.batch_tokens", "2147483647"});
}

TEST(Config, a_wrong_type_or_value_is_rejected_with_the_expected_one) {
  refused("[optimizer]\nbeta1 = 'high'", {},
          {"a.toml:13", "optimizer.beta1", "0.999999", "\"high\""});
  refused("[log]\nevery_steps = 0", {}, {"a.toml:13: log.every_steps", "0"});
  refused("[log]\nevery_steps = 1.5", {}, {"a.toml:13: log.every_steps", "1.5"});
  refused("[log]\ntensorboard = 1", {}, {"a.toml:13", "log.tensorboard"});
  refused("[schedule]\nkind = 'cosin'", {},
          {"a.toml:13", "schedule.kind", "\"cosin\"", "\"cosine\"", "\"linear\"", "\"constant\"",
           "\"wsd\""});
  refused("[optimizer]\nepsilon = 0", {}, {"a.toml:13: optimizer.epsilon", "0"});
  for (const char* value : {"nan", "inf", "-1", "1e10"})
    refused("", {str("optimizer.learning_rate=", value)}, {"--set: optimizer.learning_rate"});
}

TEST(Config, a_missing_key_is_named) {
  refused("[model]\nfamily = 'gpt2'\n", {}, {"a.toml", "model.layers", "4096"}, "");
}

TEST(Config, inconsistent_values_are_rejected) {
  refused("", {"train.batch_tokens=100"}, {"--set: train.batch_tokens is 100", "(32)", "96"});
  refused("", {"model.kv_heads=3"}, {"--set: model.kv_heads is 3", "model.heads (4)"});
  const Settings three{"model.heads=3", "model.head_size=16"};
  const std::string width = "--set: model.heads is 3: model.width (a.toml:4) is 64";
  refused("", {"model.heads=3", "model.family=qwen3"}, {width, "model.head_size"});
  EXPECT_NO_THROW(with({three[0], three[1], "model.family=qwen3"}));
  for (const std::string family : {"llama3", "gpt2"})
    refused("", {three[0], three[1], "model.family=" + family}, {width, family});
  refused("", {"model.head_size=7"}, {"--set: model.head_size is 7"});
  refused("", {"train.micro_batch=4"}, {"train.micro_batch is 4", "(3)"});
  refused("", {"model.max_positions=16"}, {"train.sequence_length (a.toml:8) is 32", "(16)"});
  refused("", {"data.train=[]"}, {"data.train"});
  refused("", {"model.family=gpt2", "model.kv_heads=2"},
          {"--set: model.kv_heads is 2", "model.heads (4)"});
  refused("", {"model.rope_scaling_low=9"}, {"model.rope_scaling_low"});
  for (const char* what : {"train.offload_activations", "train.offload_optimizer"}) {
    const auto offload = str(what, "=true");
    refused("", {offload, "train.cuda_graphs=on"}, {"--set", "train.cuda_graphs", "\"on\"", what});
    EXPECT_NO_THROW(with({offload}));
  }
}

TEST(Config, tensor_chunks_divide_the_tokens_of_a_micro_batch) {
  const auto chunks = [](Settings settings) {
    settings.insert(settings.end(), {"train.micro_batch=3", "layout.tensor=2"});
    return with(settings).layout.tensor_chunks;
  };
  EXPECT_EQ(chunks({}), 1);
  EXPECT_EQ(chunks({"layout.tensor_chunks=8"}), 8);
  EXPECT_EQ(with({"layout.tensor_chunks=7"}).layout.tensor_chunks, 7) << "ignored: one tensor rank";
  refused("", {"train.micro_batch=3", "layout.tensor=2", "layout.tensor_chunks=7"},
          {"--set: layout.tensor_chunks is 7", "a multiple of 14 tokens", "96"});
  // An fp8 matmul needs a multiple of 16 tokens.
  const Settings fp8{"precision.compute=bf16", "precision.fp8=tensor", "model.width=128"};
  Settings two = fp8, four = fp8;
  two.emplace_back("layout.tensor_chunks=2");
  EXPECT_EQ(chunks(two), 2);
  four.insert(four.end(), {"train.micro_batch=3", "layout.tensor=2", "layout.tensor_chunks=4"});
  refused("", four, {"layout.tensor_chunks is 4", "a multiple of 64 tokens"});
}

TEST(Config, keep_gathered_needs_full_sharding_and_enough_layers) {
  EXPECT_EQ(resolve("[layout]\nkeep_gathered = 2").values.layout.keep_gathered, 2);
  refused("", {"layout.keep_gathered=3"}, {"--set: layout.keep_gathered is 3", "model.layers (2)"});
  refused("", {"layout.keep_gathered=1", "layout.sharding=gradients"},
          {"--set: layout.keep_gathered is 1", "layout.sharding"});
}

TEST(Config, reductions_in_bf16_need_bf16_compute) {
  EXPECT_EQ(resolve("").values.layout.reduce, Reduce::fp32);
  refused("", {"layout.reduce=bf16"},
          {"--set: layout.reduce is \"bf16\"", "set precision.compute to \"bf16\""});
  refused("", {"layout.reduce=fp16"}, {"layout.reduce", "\"nccl\"; found the string \"fp16\""});
  EXPECT_EQ(with({"layout.reduce=bf16", "precision.compute=bf16"}).layout.reduce, Reduce::bf16);
  EXPECT_EQ(with({"layout.reduce=nccl"}).layout.reduce, Reduce::nccl);
}

TEST(Config, partner_copies_need_local_directory_and_an_archive_needs_keep_every_steps) {
  const auto local = "checkpoint.local_directory=/dev/shm/run";
  EXPECT_TRUE(
      resolve("[checkpoint]\npartner_copies = true", {local}).values.checkpoint.partner_copies);
  refused("", {"checkpoint.partner_copies=true"},
          {"--set: checkpoint.partner_copies", "checkpoint.local_directory"});
  refused("", {"checkpoint.archive_directory=/archive"},
          {"--set: checkpoint.archive_directory", "\"/archive\"", "checkpoint.keep_every_steps"});
}

TEST(Config, fp8_is_rejected_without_bf16_or_with_unsupported_sizes) {
  const auto bf16 = "precision.compute=bf16", tensor = "precision.fp8=tensor";
  const auto block = "precision.fp8=block";
  using Gradients = Config::Fp8Gradients;
  EXPECT_EQ(with({bf16, tensor}).precision.fp8_gradients, Gradients::e5m2);
  const Settings wide{bf16, block, "model.width=128", "model.mlp_width=128",
                      "train.batch_tokens=128"};
  EXPECT_EQ(with(wide).precision.fp8_gradients, Gradients::e4m3);
  refused("", {tensor}, {"--set: precision.fp8", "\"tensor\"", "\"off\"", "precision.compute"});
  refused("", {bf16, block}, {"--set: precision.fp8 is \"block\"", "128", "64"});
  refused("", {bf16, tensor, "model.mlp_width=40"},
          {"--set: precision.fp8 is \"tensor\"", "16", "40"});
  refused(
      "",
      {bf16, tensor, "train.batch_tokens=120", "train.sequence_length=12", "train.micro_batch=2"},
      {"--set: train.micro_batch is 2", "4", "precision.fp8", "16"});
  // The stacked matrix has 512 rows, but each rank would have 64 rows of k and of v.
  auto ranks = wide;
  for (const char* size : {"model.width=256", "model.heads=4", "model.kv_heads=4",
                           "model.head_size=64", "model.mlp_width=512", "layout.tensor=2"})
    ranks.emplace_back(size);
  EXPECT_NO_THROW(with(ranks));
  ranks.emplace_back("model.kv_heads=2");
  refused("", ranks, {"--set: layout.tensor is 2", "precision.fp8", "128"});
}

TEST(Config, a_setting_is_toml_and_a_bare_word_is_a_string) {
  const auto c =
      with({"data.train=[\"a b\", 'c']", "data.validation=x/y-1.bin", "schedule.kind=linear",
            "log.sample_prompt=42", "optimizer.learning_rate=1", "train.init_from=\"q\""});
  EXPECT_EQ(c.data.train, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(c.data.validation, std::vector<std::string>{"x/y-1.bin"});
  EXPECT_EQ(c.schedule.kind, Config::Decay::linear);
  EXPECT_EQ(c.log.sample_prompt, "42");
  EXPECT_EQ(c.train.init_from, "q");
  refused("", {"data.train=[\"a\""}, {"--set: data.train"});
  EXPECT_THROW(with({"log.sample_prompt=\xff"}), ConfigError);  // not UTF-8
  EXPECT_THROW(parse_setting("train.steps"), UsageError);
  EXPECT_THROW(parse_setting("=5"), UsageError);
}

TEST(Config, an_array_of_numbers_is_not_a_path) {
  refused("", {"data.train=[1]"}, {"--set: data.train"});
  refused("", {"data.train={a = 1}"}, {"--set: data.train"});
  EXPECT_EQ(with({"data.train='[1]'"}).data.train.at(0), "[1]");
}

TEST(Config, a_printed_configuration_resolves_to_the_same_values) {
  const auto first =
      resolve("[optimizer]\nlearning_rate = 0.1234567890123\n[precision]\nmoments = 'bf16'",
              {"log.sample_prompt=a \"b\"\n", "model.rope_scaling_factor=8"});
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

TEST(Config, derived_values_are_derived_again_from_a_printed_configuration) {
  const auto printed = to_toml(resolve("", {"train.steps=1000"}));
  const auto again = resolve_text(printed, {"train.steps=5000", "train.seed=9", "model.width=128"});
  EXPECT_EQ(again.values.schedule.warmup_steps, 100);
  EXPECT_EQ(again.values.data.seed, 9u);
  EXPECT_EQ(again.values.model.head_size, 32);
  EXPECT_EQ(again.values.train.batch_tokens, 96);
  EXPECT_TRUE(resolve_text(printed, {"model.family=qwen2"}).values.model.qkv_bias);
}

TEST(Config, a_model_table_reads_back_as_written) {
  const auto model = with({"model.family=llama3", "model.kv_heads=2", "model.qkv_bias=true",
                           "model.norm_epsilon=3e-6", "model.rope_scaling_factor=8"})
                         .model;
  const auto again = resolve_config(model_to_toml(model) + "[data]\ntrain = 'x'", "m.toml", {});
  EXPECT_EQ(again.values.model, model);
}

TEST(Config, a_mixture_is_tables_in_the_file_or_an_array_on_the_command_line) {
  const std::vector<DataSource> mixture{{.paths = {"web/*.bin"}, .weight = 0.7},
                                        {.paths = {"code", "more code"}, .weight = 2}};
  const auto from_file = resolve_config(
      str(kNoData, "[data]\nseed = 5\n[[data.source]]\npath = 'web/*.bin'\nweight = 0.7\n",
          "[[data.source]]\npath = ['code', 'more code']\nweight = 2\n"),
      "a.toml", {});
  EXPECT_EQ(from_file.values.data.source, mixture);
  EXPECT_EQ(from_file.values.data.sources(), mixture);
  EXPECT_EQ(from_file.origins.at("data.source"), "a.toml:12");
  const auto mixed = [](const std::string& tables) {
    return resolve_text(kNoData, {"data.source=" + tables});
  };
  EXPECT_EQ(mixed("[{path='web/*.bin',weight=0.7},{path=['code','more code'],weight=2}]")
                .values.data.source,
            mixture);
  // The configuration in the run directory and the one in checkpoints have the same mixture.
  EXPECT_EQ(resolve_config(to_toml(from_file), "again", {}).values.data.source, mixture);
  const auto json = Json::parse(to_json(from_file.values).dump(2), "about");
  EXPECT_EQ(config_from_json(json, "a checkpoint").values.data.source, mixture);
  const auto epochs = mixed("[{path='a',epochs=1},{path='b',epochs=2.5}]");
  EXPECT_EQ(epochs.values.data.source[1].epochs, 2.5);
  EXPECT_EQ(resolve_config(to_toml(epochs), "again", {}).values.data.source,
            epochs.values.data.source);
  EXPECT_EQ(with({}).data.sources(), (std::vector<DataSource>{{.paths = {"some/where"}}}));
}

TEST(Config, a_mixture_has_at_most_256_sources) {
  const auto tables = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += str("[[data.source]]\npath = '", i, "'\nweight = 1\n");
    return text;
  };
  EXPECT_EQ(resolve_text(kNoData + tables(256)).values.data.source.size(), 256u);
  const auto message = message_of<ConfigError>([&] { resolve_text(kNoData + tables(257)); });
  for (const char* pin : {"257", "256"})
    expect_contains(message, pin);
  expect_wording("launch/config", "257 sources", message);
}

TEST(Config, an_invalid_mixture_is_rejected_by_line_and_key) {
  const std::string one = "[[data.source]]\npath = 'a'\nweight = 1\n";
  const auto second = [&](const std::string& table, std::initializer_list<std::string> pins) {
    refused(one + "[[data.source]]\n" + table, {}, pins, kNoData);
  };
  second("path = 'b'\nwieght = 1\n", {"a.toml:15: data.source", "wieght", "weight?"});
  second("path = 'b'\nweight = 0\n", {"a.toml:15: data.source", "weight", "0"});
  second("path = 5\nweight = 1\n", {"a.toml:14: data.source", "path", "5"});
  second("weight = 1\n", {"a.toml:14: data.source", "table 2", "path"});
  second("path = 'b'\n", {"a.toml:14: data.source", "weight", "epochs", "\"b\""});
  second("path = 'b'\nepochs = 1\n", {"a.toml:15: data.source", "weight", "epochs", "\"b\""});
  refused("[[data.sources]]\npath = 'a'\n", {}, {"a.toml:10", "data.sources", "data.source?"},
          kNoData);
  refused("", {"data.source=5"}, {"--set: data.source", "5"}, kNoData);
  refused("[data]\ntrain = 'x'\n" + one, {}, {"a.toml:12: data.source", "data.train", "a.toml:11"},
          kNoData);
  refused("", {}, {"a.toml", "data.train", "data.source"}, kNoData);
  refused("", {"data.shuffle_shards=2", "data.rows=packed"},
          {"--set: data.shuffle_shards is 2", "data.rows"});
}

TEST(Config, a_warmup_longer_than_the_run_is_rejected) {
  refused("[schedule]\nwarmup_steps = 100", {"train.steps=99"},
          {"a.toml:13", "schedule.warmup_steps", "100", "train.steps"});
}

TEST(Config, a_long_list_reads_back_as_printed) {
  std::string list;
  for (int i = 0; i < 200; ++i)
    list += "'/a/directory/of/some/length/with/many/shards/train_" + std::to_string(i) + ".bin',\n";
  const auto first = resolve("validation = [\n" + list + "]\n");
  ASSERT_EQ(first.values.data.validation.size(), 200u);
  const auto text = to_toml(first);
  EXPECT_EQ(resolve_config(text, "printed", {}).values.data.validation,
            first.values.data.validation);
  EXPECT_EQ(config_from_json(to_json(first.values), "checkpoint").values.data.validation,
            first.values.data.validation);
  EXPECT_NE(text.find(".bin\",\n]  "), std::string::npos) << text;
}

TEST(Config, every_option_has_help_and_accepts_its_default) {
  for (const auto& option : options()) {
    EXPECT_FALSE(option.help.empty()) << option.key;
    EXPECT_EQ(option.help.back(), '.') << option.key;
    EXPECT_EQ(find_option(option.key), &option) << "twice: " << option.key;
    auto c = with({});
    const auto value = parse_toml_value(to_toml(option, c));
    ASSERT_TRUE(value) << option.key;
    EXPECT_EQ(assign(option, c, *value), "") << option.key;
  }
}

TEST(Config, the_shipped_files_describe_the_published_models) {
  const std::map<std::string, std::int64_t> parameters{
      {"gpt2_124m", 124'439'808},     {"llama3_8b", 8'030'261'248},
      {"llama3_70b", 70'553'706'496}, {"llama3_8b_1024", 8'030'261'248},
      {"quickstart", 3'148'544},      {"qwen2.5_0.5b", 494'032'768},
      {"qwen3_0.6b", 596'049'920},    {"smollm3_3b", 3'075'098'624}};
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (file.is_directory()) continue;  // configs/clusters
    const auto c = load_config(file.path(), {});
    const auto expected = parameters.find(file.path().stem().string());
    ASSERT_NE(expected, parameters.end()) << file.path();
    EXPECT_EQ(parameter_count(c.values.model), expected->second) << file.path();
    ++files;
  }
  EXPECT_EQ(files, parameters.size());
}

// The number of ranks in "[layout]  # 64 ranks: ..." of a shipped file; 0 without this table.
int named_ranks(const std::filesystem::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("[layout]")) continue;
    const auto comment = line.find("# ");
    return comment == std::string::npos ? -1 : std::stoi(line.substr(comment + 2));
  }
  return 0;
}

TEST(Config, layouts_of_shipped_files_fit_the_stated_number_of_ranks) {
  int layouts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE_DIR "/configs")) {
    if (entry.is_directory()) continue;
    const int ranks = named_ranks(entry.path());
    if (ranks == 0) continue;
    const auto c = load_config(entry.path(), {}, ranks).values;
    EXPECT_EQ(c.layout.ranks, ranks);
    EXPECT_NO_THROW(mesh_of(c.layout, ranks)) << entry.path();
    EXPECT_NO_THROW(require_divisible(c.model, c.layout.tensor)) << entry.path();
    // Each rank has the same number of whole micro-batches.
    const auto sequences = c.train.batch_tokens / c.train.sequence_length;
    const auto data_ranks = ranks / c.layout.tensor;
    EXPECT_EQ(sequences % (data_ranks * c.train.micro_batch), 0) << entry.path();
    ++layouts;
  }
  EXPECT_GE(layouts, 6);
}

TEST(Config, an_axis_that_is_not_set_is_derived_from_the_ranks_and_reported) {
  struct Case {
    int ranks;
    const char* layout;
    std::array<std::int64_t, 3> axes;  // replicate, shard, tensor
    bool is_said = false;
  };
  const std::vector<Case> cases{{16, "", {1, 16, 1}},
                                {16, "replicate = 2\nshard = 8", {2, 8, 1}},
                                {32, "replicate = 2", {2, 16, 1}, true},
                                {32, "tensor = 2", {1, 16, 2}, true},
                                {32, "shard = 4\ntensor = 2", {4, 4, 2}, true},
                                {1, "shard = 8", {1, 8, 1}}};
  for (const auto& [ranks, layout, axes, is_said] : cases) {
    const auto config = resolve_config(str(kSmall, "[layout]\n", layout), "a.toml", {}, ranks);
    const auto& l = config.values.layout;
    EXPECT_EQ((std::array{l.replicate, l.shard, l.tensor}), axes) << layout;
    const auto words = derived_axis_in_words(config, 8);
    EXPECT_EQ(!words.empty(), is_said) << layout;
    if (is_said) expect_wording("launch/config", str(ranks, " ranks, ", layout), words);
  }
}

TEST(Config, the_page_of_the_documentation_is_up_to_date) {
  EXPECT_TRUE(slurp(LOCKSTEP_SOURCE_DIR "/docs/configuration.md") == configuration_reference())
      << "docs/configuration.md differs; write it anew: lockstep config --reference > "
         "docs/configuration.md";
}

}  // namespace lockstep::testing::config_test

// Unknown keys, tables and variables, and what the user probably means.
#include "launch/key_names.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include "launch/config.h"
#include "launch/options.h"
#include "tests/wording.h"

namespace lockstep::testing::key_names_test {

const std::string kSmall =
    "[model]\nfamily = 'llama3'\nlayers = 2\nwidth = 64\nheads = 4\nvocabulary = 257\n"
    "[train]\nsequence_length = 32\nbatch_tokens = 96\n[data]\ntrain = 'some/where'\n";

// kSmall with the lines `more`, or with `setting`, is a configuration error.
void refused(const std::string& more, const std::string& setting,
             std::initializer_list<std::string> pins) {
  const auto name = more + (setting.empty() ? "" : "--set " + setting);
  std::vector<Setting> settings;
  if (!setting.empty()) settings.push_back(parse_setting(setting));
  expect_refusal<ConfigError>("launch/config", name, pins,
                              [&] { resolve_config(kSmall + more, "a.toml", settings); });
}

void variable_refused(const char* variable, std::initializer_list<std::string> pins) {
  const char* environment[] = {variable, nullptr};
  expect_refusal<ConfigError>("launch/config", variable, pins,
                              [&] { environment_settings(environment); });
}

TEST(KeyNames, names_of_other_programs_are_no_keys_and_each_means_one_key) {
  std::set<std::string> seen;
  for (const auto& [keys, names, note] : key_names()) {
    std::istringstream all{std::string(keys)}, others{std::string(names)};
    for (std::string key; all >> key;)
      EXPECT_TRUE(key == "or" || find_option(key) != nullptr) << key;
    for (std::string name; others >> name;) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      EXPECT_TRUE(std::ranges::none_of(options(), [&](auto& o) { return o.name() == name; }))
          << name;
    }
  }
}

TEST(KeyNames, names_of_other_programs_get_the_key) {
  for (const auto& [typed, key] : std::vector<std::pair<std::string, std::string>>{
           {"lr", "optimizer.learning_rate?"},
           {"optimizer.LR", "optimizer.learning_rate?"},
           {"learning-rate", "optimizer.learning_rate?"},
           {"batch_size", "train.batch_tokens? It is in tokens"},
           {"train.grad_accum", "train.batch_tokens? Gradient accumulation follows"},
           {"model.n_layer", "model.layers?"},
           {"hidden_size", "model.width?"},
           {"max_steps", "train.steps?"},
           {"layout.tp", "layout.tensor?"},
           {"precision.dtype", "precision.compute?"},
           {"train.seq_len", "train.sequence_length?"},
           {"schedule.min_lr", "schedule.final_ratio? It is a fraction"},
           {"optimizer.warmup_steps", "schedule.warmup_steps?"},
           {"model.seed", "train.seed or data.seed?"},
           {"train.every_steps", "eval.every_steps, checkpoint.every_steps or log.every_steps?"},
           {"xylophone", "see `lockstep config --reference`"}})
    refused("", typed + "=1", {str("--set: unknown key ", typed), key});
  refused("[training]\nsteps = 3\n", "", {"a.toml:12: unknown table [training]", "mean train?"});
  refused("[parallelism]\ntp = 3\n", "", {"unknown table [parallelism]", "mean layout?"});
  variable_refused("LOCKSTEP_OPTIMIZER_LR=1",
                   {"LOCKSTEP_OPTIMIZER_LR", "optimizer.learning_rate?"});
}

TEST(KeyNames, an_unknown_key_or_table_is_rejected_with_the_nearest) {
  refused("[optimizer]\nlearning_rat = 1", "",
          {"a.toml:13", "optimizer.learning_rat", "optimizer.learning_rate"});
  refused("[eval]\nlearning_rate = 1", "",
          {"a.toml:13", "eval.learning_rate", "optimizer.learning_rate"});
  refused("[shedule]\n", "", {"a.toml:12", "[shedule]", "schedule?"});
  refused("[log.more]\n", "", {"a.toml:12", "log.more", "lockstep config --reference"});
  refused("", "train.stesp=1", {"--set", "train.stesp", "train.steps"});
  for (const char* misspelt : {"LOCKSTEP_TRAIN_STEP=7", "LOCKSTEP_TRIAN_STEPS=4"})
    variable_refused(misspelt, {"LOCKSTEP_TRAIN_STEPS?"});
  std::istringstream others(
      "CPU=avx2 SECRET=ab INTERFACE=eth0 NVML=x TEST_SEED=1 SMALL_SHAPES=1 RECORD=x "
      "RECORD_DRIVER=0 RECORD_GPUS=2 RECORD_PAIRS=1 RECORD_ODD_RANK=1 RECORD_CAPABILITY=10 LLMC=x "
      "LLMQ=x BUNDLE=x SIMT_MIB=1 SIMT_FASTEST=1 SIMT_CUBLASLT=1 SIMT_EPILOGUE=1 TEST_VARIABLE=1");
  for (std::string other; others >> other;) {
    other.insert(0, "LOCKSTEP_");
    const char* environment[] = {other.c_str(), nullptr};
    EXPECT_TRUE(environment_settings(environment).empty()) << other;
  }
}

}  // namespace lockstep::testing::key_names_test

#include <iostream>
#include <memory>

#include "launch/device.h"
#include "launch/presets.h"
#include "launch/verb.h"
#include "train/interop/model_source.h"

namespace lockstep {
namespace {

struct ConfigOptions {
  std::string config;
  std::vector<Setting> settings;
  std::string model;       // print the table [model] of this model instead
  bool list = false;       // print the presets instead
  bool reference = false;  // print docs/configuration.md instead
};

// Prints the resolved configuration, with the origin of each value, to standard output.
int run_config(const ConfigOptions& options) {
  if (options.config.empty() && options.model.empty() && !options.reference && !options.list)
    throw UsageError("config: expected CONFIG.toml, --list, --model or --reference");
  if (options.list)
    std::cout << list_of_presets();
  else if (options.reference)
    std::cout << configuration_reference();
  else if (!options.model.empty())
    std::cout << model_to_toml(find_model(options.model).model);
  else
    std::cout << to_toml(
        load_config(options.config, options.settings, 1, automatic_precision(device_of("best"))));
  return 0;
}

}  // namespace

Verb config_verb() {
  auto o = std::make_shared<ConfigOptions>();
  return {"config",
          "print the resolved configuration and the origin of each value",
          {{"config", &o->config, "Configuration", "CONFIG.toml",
            "configuration of a run, or a name of --list"},
           settings_flag(o->settings),
           {"--list", &o->list, "Output", "",
            "print the names of the configurations that come with the program",
            kRule.excluding({"config", "--set"})},
           {"--reference", &o->reference, "Output", "",
            "print the meaning, values and default of every key",
            kRule.excluding({"config", "--set", "--list"})},
           {"--model", &o->model, "Output", "MODEL",
            "print the table [model] of a run, a Hugging Face model or an llm.c model",
            kRule.excluding({"config", "--set", "--list", "--reference"})}},
          [o] { return run_config(*o); }};
}

}  // namespace lockstep

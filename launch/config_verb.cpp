#include "launch/config_verb.h"

#include <iostream>

#include "train/interop/model_source.h"

namespace lockstep {

int run_config(const ConfigOptions& options) {
  if (options.reference)
    std::cout << configuration_reference();
  else if (!options.model.empty())
    std::cout << model_to_toml(find_model(options.model).model);
  else
    std::cout << to_toml(load_config(options.config, options.settings));
  return 0;
}

}  // namespace lockstep

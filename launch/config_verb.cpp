#include "launch/config_verb.h"

#include <iostream>

namespace lockstep {

int run_config(const ConfigOptions& options) {
  std::cout << (options.reference ? configuration_reference()
                                  : to_toml(load_config(options.config, options.settings)));
  return 0;
}

}  // namespace lockstep

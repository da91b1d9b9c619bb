#include "launch/config_verb.h"

#include <iostream>

namespace lockstep {

int run_config(const ConfigOptions& options) {
  std::cout << (options.reference ? configuration_reference()
                                  : to_toml(load_config(options.config, options.settings)));
  std::cout.flush();
  if (!std::cout) throw Error("cannot write to standard output");
  return 0;
}

}  // namespace lockstep

// `lockstep generate`.
#pragma once

#include <string>

#include "train/sampler.h"

namespace lockstep {

struct GenerateOptions {
  std::string model;  // a run or a checkpoint
  std::string prompt;
  std::int64_t tokens = 256;
  Sampling sampling;
  std::string device = "cpu";
  std::int64_t threads = 0;  // 0: every processor this process may run on
};

// Writes the prompt and what follows it to standard output, each token as it comes.
int run_generate(const GenerateOptions& options);

}  // namespace lockstep

// `lockstep generate`.
#pragma once

#include <string>

#include "train/sampler.h"

namespace lockstep {

struct GenerateOptions {
  std::string model;  // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::string prompt;
  std::int64_t tokens = 256;
  bool asked_tokens = false;  // not the default, which may be more than the model has room for
  Sampling sampling;
  std::string device = "best";
  int threads = 0;  // 0: every processor this process may run on
};

// Writes the prompt and what follows it to standard output, each token as it comes.
int run_generate(const GenerateOptions& options);

}  // namespace lockstep

// `lockstep eval`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct EvalOptions {
  std::string model;              // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::vector<std::string> data;  // datasets; empty: what the run held out
  std::int64_t sequence_length = 0;  // 0: the run's, or the model's positions, 1024 at most
  std::int64_t tokens = 0;           // 0: all
  bool document_mask = false;
  std::string device = "best";
  int threads = 0;  // 0: every processor this process may run on
};

// Writes one JSON object to standard output: loss_nats, bits_per_token, perplexity, tokens,
// seconds.
int run_eval(const EvalOptions& options);

}  // namespace lockstep

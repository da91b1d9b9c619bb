// `lockstep generate`.
#pragma once

#include <string>
#include <vector>

#include "launch/ranks.h"
#include "model/sampler.h"

namespace lockstep {

struct GenerateOptions {
  std::string model;  // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::string prompt;
  std::string prompt_file;  // instead: the text of one, or of NAME.jsonl {"prompt": text} a line
  std::int64_t tokens = 256;
  bool asked_tokens = false;       // not the default, which may be more than the model has room for
  std::vector<std::string> stops;  // texts or special tokens; ends in front of the first
  std::int64_t batch = 8;          // of a NAME.jsonl, generated together
  std::string tokenizer;           // see open_tokenizer; empty: the model's
  Sampling sampling;
  ModelRanksOptions ranks;
};

// Writes the prompt and what follows it to standard output, each character as it comes; of a
// NAME.jsonl a line {"prompt", "text", "tokens", "finish": "end", "stop" or "length"} for each.
int run_generate(const GenerateOptions& options);

}  // namespace lockstep

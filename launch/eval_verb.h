// `lockstep eval`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/ranks.h"

namespace lockstep {

struct EvalOptions {
  std::string model;              // a run, a checkpoint, a Hugging Face directory or an llm.c model
  std::vector<std::string> data;  // datasets; empty: what the run held out
  std::int64_t sequence_length = 0;  // 0: the run's, or the model's positions, 1024 at most
  std::int64_t tokens = 0;           // 0: all
  bool document_mask = false;
  std::string choices;         // a file of questions, instead of datasets
  std::int64_t questions = 0;  // the first so many; 0: all
  std::int64_t batch = 0;      // questions at once; 0: as many as fit
  std::string document_start;  // "on", "off"; empty: as the tokenizer says
  std::string out;             // a record of each question; empty: none
  std::string tokenizer;       // see open_tokenizer; empty: the model's
  ModelRanksOptions ranks;
};

// Rank 0 writes one JSON object to standard output. Of tokens: loss_nats, bits_per_token,
// perplexity, tokens, sequence_length, bytes, bits_per_byte and byte_perplexity (null where their
// tokenizer is not known), and seconds. Of questions: acc, acc_norm, acc_bytes and acc_tokens, each
// with its _stderr.
int run_eval(const EvalOptions& options);

}  // namespace lockstep

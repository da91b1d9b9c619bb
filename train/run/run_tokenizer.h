// The tokenizer of a run, and the prompt of its samples.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/sources.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/comms.h"
#include "train/config.h"
#include "train/run_directory.h"

namespace lockstep {

// The tokenizer of a run, if one is known. It comes from an earlier start, from the training data,
// or from the initial model. The tokenizer of remote data is first fetched into RUN/tokenizer.
// `what` is for keep_tokenizer. Collective.
struct RunTokenizer {
  std::string what;
  std::unique_ptr<Tokenizer> tokenizer;  // null if none is known or usable
};
RunTokenizer run_tokenizer(const Config& config, const Sources& training, const RunDirectory& run,
                           World& world, ShardFiles& files);

// The prompt of samples, as at the start of a document; without a tokenizer it is token 0. Throws
// ConfigError if log.sample_prompt cannot be encoded, or has too many tokens for the model.
std::vector<std::int32_t> sample_prompt(const Config& config, const RunTokenizer& known);

}  // namespace lockstep

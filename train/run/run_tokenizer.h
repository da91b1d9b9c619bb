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

// The tokenizer of a run's tokens, where one is known: that of an earlier start, of its training
// data, or of the model that it starts from. What lies beside distant data is brought into
// RUN/tokenizer first. `what` is for keep_tokenizer. Every rank of the world at once.
struct RunTokenizer {
  std::string what;
  std::unique_ptr<Tokenizer> tokenizer;  // nullptr: none is known, or it cannot be used
};
RunTokenizer run_tokenizer(const Config& config, const Sources& training, const RunDirectory& run,
                           World& world, ShardFiles& files);

// The prompt of samples as a document starts; without a tokenizer token 0. Throws ConfigError where
// log.sample_prompt has no tokens, or more than the model has positions for.
std::vector<std::int32_t> sample_prompt(const Config& config, const RunTokenizer& known);

}  // namespace lockstep

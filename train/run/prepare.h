// Prepare: what all ranks of a run do before it takes memory and reads data. What cannot go is
// refused, on all of them, and the log says what is trained.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/tokenizer/tokenizer.h"
#include "dist/comms.h"
#include "train/layout.h"
#include "train/observe/meter.h"
#include "train/run/run_parts.h"
#include "train/run_directory.h"
#include "train/step/training.h"

namespace lockstep {

// Rank 0 makes what the others then find.
RunDirectory open_run(const std::filesystem::path& path, World& world);

// Says what is trained, and in how much memory, before the memory is taken: where it is large, the
// system needs seconds for it. Throws ConfigError where there is less. `others`: see
// room_here.
RunBytes announced_bytes(const Config& config, const Stream& compute, World& world,
                         const std::string& others);

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

// All ranks at once: they read the same data. `held_out`: of data.validation; may be absent. Throws
// ConfigError where they do not, or its tokens cannot be those of the tokenizer of the training
// data; warns of data that are not what the model is for.
void check_data(const Config& config, const Sources& training, const Dataset* held_out,
                World& world);

// Says of a mixture what a run up to sample `end` makes of each source; warns where that is many
// epochs.
void log_sources(const Config& config, const Sources& sources, std::int64_t end);

// Says what a step takes and what MFU means here; warns of settings that do nothing.
void log_step(const Config& config, const Loader& loader, int ranks, const Meter::Config& meter);

}  // namespace lockstep

// Evaluate: the loss of a model on held-out tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/stream.h"
#include "data/shard_files.h"
#include "data/source.h"
#include "data/tokenizer/tokenizer.h"
#include "train/interop/model_source.h"
#include "train/step/inference.h"

namespace lockstep {

struct EvaluateRequest {
  std::vector<std::string> datasets;
  std::int64_t sequence_length = 0;  // of a window; at most the model's positions
  std::int64_t micro_batch = 0;      // windows at once
  std::int64_t tokens = 0;           // to evaluate, see most_windows; 0: all
  bool document_mask = false;
  RowKind rows = RowKind::automatic;
  ShardFiles* files = nullptr;           // opens them; null: as usual
  const Tokenizer* tokenizer = nullptr;  // of the tokens, where it is known: counts their bytes
};

struct Evaluation {
  double loss = 0;  // mean over the tokens, nats
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  // of text that the tokens stand for, special ones none; 0: not known
  double seconds = 0;
};

// The mean loss over the first windows of the datasets, in their order, each token once. Throws
// DataError naming model and tokens where it is not finite. Where it throws, files that fetch may
// be stopped. The ranks divide the windows; each of them gets the whole result.
Evaluation evaluate(const ModelSource& source, const EvaluateRequest& request,
                    const ModelRanks& ranks, Stream& stream);

}  // namespace lockstep

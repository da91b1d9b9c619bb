// Evaluate computes the loss of a model on held-out tokens.
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
  std::int64_t sequence_length = 0;  // length of a window; at most the model's positions
  std::int64_t micro_batch = 0;      // windows of one forward pass, on a rank
  std::int64_t tokens = 0;           // number of tokens, see most_windows; 0: all
  bool document_mask = false;
  RowKind rows = RowKind::automatic;
  ShardFiles* files = nullptr;           // opens the shards; null: default
  const Tokenizer* tokenizer = nullptr;  // of the tokens, to count their bytes; null: unknown
};

struct Evaluation {
  double loss = 0;  // mean over the tokens, nats
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  // bytes of the tokens' text, without special tokens; 0: unknown
  double seconds = 0;
};

// Computes the mean loss over the first windows of the datasets, in order, with each token once.
// The ranks divide the windows, and each gets the whole result. Throws DataError naming model and
// tokens if the loss is not finite. After an error request.files may be stopped.
Evaluation evaluate(const ModelSource& source, const EvaluateRequest& request,
                    const ModelRanks& ranks, Stream& stream);

}  // namespace lockstep

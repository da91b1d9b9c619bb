#include "launch/eval_verb.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "core/thread_pool.h"
#include "launch/train_verb.h"
#include "train/evaluate.h"

namespace lockstep {

int run_eval(const EvalOptions& options) {
  constexpr std::int64_t kMostLength = 1024, kTokensAtOnce = 4096;
  const auto source = find_model(options.model);
  const auto length = options.sequence_length > 0
                          ? options.sequence_length
                          : std::min(source.model.max_positions, kMostLength);
  const int threads =
      options.threads > 0 ? static_cast<int>(options.threads) : processors_allowed();
  Stream stream(device_of(options.device), "compute", Stream::Mode::immediate, threads);
  const auto result = evaluate(source,
                               {.datasets = options.data,
                                .sequence_length = length,
                                .micro_batch = std::max<std::int64_t>(kTokensAtOnce / length, 1),
                                .tokens = options.tokens,
                                .document_mask = options.document_mask},
                               stream);
  Json json;
  json.set("model", source.path.string());
  json.set("loss_nats", result.loss);
  json.set("bits_per_token", result.loss / std::log(2.0));
  json.set("perplexity", std::exp(result.loss));
  json.set("tokens", result.tokens);
  json.set("seconds", result.seconds);
  std::cout << json.dump() << std::endl;
  if (!std::cout) throw Error("cannot write to standard output");
  return 0;
}

}  // namespace lockstep

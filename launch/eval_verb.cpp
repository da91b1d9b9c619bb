#include "launch/eval_verb.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "core/thread_pool.h"
#include "launch/config.h"
#include "launch/device.h"
#include "train/evaluate.h"

namespace lockstep {

namespace {

// What the run was configured with: where it held out data, and the length of its windows.
Config configuration_of(const ModelSource& source) {
  const auto* values = source.about.find("configuration");
  if (values == nullptr)
    throw UsageError(str(source.path.string(),
                         " does not say what it was trained on; name held-out "
                         "datasets with --data"));
  return config_from_json(*values, source.path.string() + ": configuration").values;
}

EvaluateRequest request_of(const EvalOptions& options, const ModelSource& source) {
  constexpr std::int64_t kMostLength = 1024, kTokensAtOnce = 4096;
  EvaluateRequest request{.datasets = options.data,
                          .sequence_length = options.sequence_length,
                          .tokens = options.tokens,
                          .document_mask = options.document_mask};
  if (request.datasets.empty()) {
    const auto config = configuration_of(source);
    request.datasets = config.data.validation;
    request.document_mask |= config.data.document_mask;
    request.rows = config.data.rows;
    if (request.sequence_length == 0) request.sequence_length = config.train.sequence_length;
    if (request.datasets.empty())
      throw UsageError("the run held out no data (data.validation); name a dataset with --data");
  }
  if (request.sequence_length == 0)
    request.sequence_length = std::min(source.model.max_positions, kMostLength);
  request.micro_batch = std::max<std::int64_t>(kTokensAtOnce / request.sequence_length, 1);
  return request;
}

}  // namespace

int run_eval(const EvalOptions& options) {
  const auto source = find_model(options.model);
  const auto request = request_of(options, source);
  const int threads = options.threads > 0 ? options.threads : processors_allowed();
  Stream stream(device_of(options.device), "compute", Stream::Mode::immediate, threads);
  const auto result = evaluate(source, request, stream);
  Json json;
  json.set("model", source.path.string());
  Json datasets;
  for (const auto& dataset : request.datasets)
    datasets.push(dataset);
  json.set("data", datasets);
  json.set("loss_nats", result.loss);
  json.set("bits_per_token", result.loss / std::log(2.0));
  json.set("perplexity", std::exp(result.loss));
  json.set("tokens", result.tokens);
  json.set("seconds", result.seconds);
  std::cout << json.dump() << "\n";
  return 0;
}

}  // namespace lockstep

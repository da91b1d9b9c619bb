#include "launch/generate_verb.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <unistd.h>

#include "core/log.h"
#include "core/thread_pool.h"
#include "core/units.h"
#include "data/tokenizer.h"
#include "launch/device.h"
#include "train/generate.h"
#include "train/inference.h"
#include "train/memory.h"
#include "train/model_source.h"

namespace lockstep {
namespace {

// The prompt as the start of a document.
std::vector<std::int32_t> encode(const std::string& prompt, const ModelConfig& model) {
  if (model.vocabulary != ByteTokenizer::kVocabulary)
    throw UsageError(str("this model's vocabulary of ", model.vocabulary,
                         " is not that of the tokenizer `bytes`, the only one so far"));
  auto tokens = ByteTokenizer().encode(prompt);
  tokens.insert(tokens.begin(), ByteTokenizer::kDocumentToken);
  return tokens;
}

// The bytes that generation peaks at.
Arenas::Bytes measure(const Inference::Config& config, Device device, int threads,
                      const GenerateRequest& request) {
  Stream stream(device, "measure", Stream::Mode::measuring, threads);
  Arenas arenas = Arenas::measure(device);
  Inference inference(config, stream, arenas);
  generate(inference.context(), inference.transformer(), arenas.pinned, request,
           [](std::int32_t) { return true; });
  return arenas.peak();
}

}  // namespace

int run_generate(const GenerateOptions& options) {
  const auto source = find_model(options.model);
  const auto prompt = encode(options.prompt, source.model);
  const auto room = source.model.max_positions - static_cast<std::int64_t>(prompt.size());
  const GenerateRequest request{.prompt = prompt,
                                .tokens = std::min(options.tokens, std::max<std::int64_t>(room, 0)),
                                .sampling = options.sampling};
  if (options.asked_tokens && 0 < room && room < options.tokens)
    log_warning("the model has positions for ", source.model.max_positions, " tokens: generating ",
                request.tokens, " behind the prompt");
  const Inference::Config config{.model = source.model};
  const int threads = options.threads > 0 ? options.threads : processors_allowed();
  Stream stream(device_of(options.device), "compute", Stream::Mode::immediate, threads);
  const auto bytes = measure(config, stream.device(), threads, request);
  require_memory(stream.device(), bytes, "generate with a smaller model, or fewer --tokens");
  Arenas arenas(stream.device(), bytes);
  Inference inference(config, stream, arenas);
  load_weights(source, inference.params(), stream);

  std::cout << options.prompt << std::flush;
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t generated = 0;
  const auto emit = [&](std::int32_t token) {
    ++generated;
    if (token == ByteTokenizer::kDocumentToken) return false;  // the document ends
    std::cout << ByteTokenizer().bytes_of(token) << std::flush;
    return std::cout.good();
  };
  in_context(
      [&] { generate(inference.context(), inference.transformer(), arenas.pinned, request, emit); },
      source.path.string());
  std::cout << "\n";
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  log_info(generated, " tokens in ", human_seconds(elapsed.count()), ", ",
           human_count(static_cast<double>(generated) / elapsed.count()), " tok/s, from ",
           source.path.string());
  return 0;
}

}  // namespace lockstep

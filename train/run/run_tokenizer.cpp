#include "train/run/run_tokenizer.h"

#include <utility>

#include "core/file.h"
#include "core/log.h"
#include "data/source.h"
#include "data/tokenizer/tokenizer_files.h"
#include "train/interop/model_source.h"
#include "train/interop/model_tokenizer.h"

namespace lockstep {

// Fetches the tokenizer of a remote dataset into the run directory. Returns whether a dataset is
// remote.
bool bring_tokenizer(const Sources& training, const RunDirectory& run, World& world,
                     ShardFiles& files) {
  const auto bytes = ByteTokenizer().about().hash;
  bool is_distant = false;
  for (std::size_t s = 0; s < training.count(); ++s)
    for (const auto& list : training.dataset(s).lists()) {
      if (!is_remote(list.directory.string()) || list.tokenizer_hash == bytes) continue;
      is_distant = true;
      if (world.rank() == 0 && !path_exists(run.tokenizer()))
        fetch_tokenizer(list.directory.string(), files, run.tokenizer());
    }
  if (is_distant) world.exchange("");
  return is_distant;
}

// Warns of a dataset whose tokenizer is not in its directory.
void warn_of_missing_tokenizer(const Sources& training, const std::string& hash) {
  for (std::size_t s = 0; s < training.count(); ++s)
    for (const auto& list : training.dataset(s).lists())
      if (list.tokenizer_hash == hash)
        return log_warning("no tokenizer found in ", list.directory.string(),
                           ", whose tokens are of ", list.format.name, " (", hash,
                           "): `generate` and `eval` will need --tokenizer. If you copy it there "
                           "before the run starts, the run keeps it");
}

RunTokenizer run_tokenizer(const Config& config, const Sources& training, const RunDirectory& run,
                           World& world, ShardFiles& files) {
  RunTokenizer known;
  const bool is_distant = bring_tokenizer(training, run, world, files);
  std::string hash;  // of all data, if known
  for (std::size_t s = 0; s < training.count() && hash.empty(); ++s)
    hash = training.dataset(s).tokenizer_hash();
  std::string of_data = hash == ByteTokenizer().about().hash ? "bytes" : "";
  for (const auto& source : config.data.sources())
    for (const auto& path : source.paths)
      if (of_data.empty() && !is_remote(path) && tokenizer_in(path)) of_data = path;
  known.what = tokenizer_in(run.tokenizer()) ? run.tokenizer().string() : of_data;
  const bool is_models = known.what.empty() && !config.train.init_from.empty();
  if (is_models) known.what = tokenizer_of(find_model(config.train.init_from));
  if (known.what.empty() && config.model.vocabulary == ByteTokenizer::kVocabulary)
    known.what = "bytes";
  if (known.what.empty()) {
    if (!hash.empty() && !is_distant) warn_of_missing_tokenizer(training, hash);
    return known;
  }
  try {
    known.tokenizer = open_tokenizer(known.what);
  } catch (const DataError& error) {  // training needs no tokenizer
    log_warning("samples are printed as token ids because the tokenizer cannot be used: ",
                error.what());
    return known;
  }
  require_tokens_of(config.model, *known.tokenizer);
  if (!is_models && !hash.empty() &&
      hash != known.tokenizer->about().hash)  // else warn_of_other_tokens()
    log_warning("the training data were not packed with the run's tokenizer, ", known.what);
  return known;
}

std::vector<std::int32_t> sample_prompt(const Config& config, const RunTokenizer& known) {
  const auto& text = config.log.sample_prompt;
  if (config.log.sample_every_steps == 0) return {};
  if (known.tokenizer == nullptr) {
    if (text.empty()) return {0};
    throw ConfigError(
        "log.sample_prompt: no tokenizer found to encode it: neither the training data nor the "
        "model that the run starts from has one");
  }
  auto prompt = in_context([&] { return known.tokenizer->encode(text); }, "log.sample_prompt");
  const auto document = known.tokenizer->about().document_token;
  if (document >= 0) prompt.insert(prompt.begin(), document);
  if (prompt.empty()) prompt.push_back(0);
  if (std::ssize(prompt) >= config.model.max_positions)
    throw ConfigError(str("log.sample_prompt is ", prompt.size(), " tokens, expected fewer than ",
                          "model.max_positions (", config.model.max_positions, ")"));
  return prompt;
}

}  // namespace lockstep

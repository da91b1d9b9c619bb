#include "train/interop/model_tokenizer.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/manifest.h"
#include "data/remote/remote.h"
#include "data/source.h"
#include "data/tokenizer/byte_tokenizer_files.h"
#include "data/tokenizer/rank_file.h"
#include "data/tokenizer/tokenizer_files.h"
#include "train/interop/token_ids.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBeginOfText = "<|begin_of_text|>";  // of Llama 3
constexpr std::int64_t kMostTokenizerBytes = std::int64_t{1} << 30;

// Directory of a dataset's dataset.json and tokenizer: the dataset, or the directory of its shards.
fs::path directory_of(const std::string& dataset) {
  const bool is_whole = is_remote(dataset) ? !dataset.ends_with(".bin") : directory_exists(dataset);
  if (is_whole) return dataset;
  auto directory = fs::path(dataset).parent_path();
  return directory.empty() ? fs::path(".") : directory;
}

// Reads dataset.json without its shards.
std::optional<Manifest> manifest_of(const std::string& dataset, ShardFiles& files) {
  const auto file = directory_of(dataset) / kManifestName;
  if (!is_remote(dataset) && !path_exists(file)) return std::nullopt;
  return Manifest::parse(read_text(files.open(file.string()), kMostTokenizerBytes), file.string(),
                         [](Manifest::Shard&&) {});
}

// Whether a file may be missing. S3 denies access to missing files.
bool may_be_missing(const DataError& error) {
  return dynamic_cast<const RefusedError*>(&error) != nullptr ||
         dynamic_cast<const AccessError*>(&error) == nullptr;
}

// Directory in which a run, or its archive, keeps the tokenizer.
fs::path kept_beside(const fs::path& checkpoint) {
  auto path = fs::absolute(checkpoint).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const auto all = path.parent_path();
  return (all.filename() == "checkpoints" ? all.parent_path() : all) / "tokenizer";
}

// Tokenizer directory of the initial model; empty if there is none, or if the model is gone.
fs::path directory_of_model(const std::string& init_from) {
  if (init_from.empty()) return {};
  try {
    const auto source = find_model(init_from);
    return source.form == ModelSource::Form::llmc ? fs::path() : tokenizer_directory_of(source);
  } catch (const DataError&) {
    return {};
  }
}

// Whether `directory` has the same tokenizer as `file`.
bool holds_same(const fs::path& file, const fs::path& directory) {
  const auto text = read_text(file, kMostTokenizerBytes);
  return std::any_of(std::begin(kTokenizers), std::end(kTokenizers), [&](const char* name) {
    return path_exists(directory / name) &&
           read_text(directory / name, kMostTokenizerBytes) == text;
  });
}

// Token that the post-processor of a tokenizer.json puts before a text.
std::string token_in_front(const Json& processor) {
  const Json* type = processor.find("type");
  if (type == nullptr || !type->is_string()) return {};
  if (type->as_string() == "Sequence") {
    for (const Json& one : processor.at("processors").as_array())
      if (auto token = token_in_front(one); !token.empty()) return token;
  } else if (type->as_string() == "TemplateProcessing") {
    const auto& single = processor.at("single").as_array();
    const Json* token = single.empty() ? nullptr : single.front().find("SpecialToken");
    if (token != nullptr) return text_at(*token, "id");
  }
  return {};
}

}  // namespace

std::string tokenizer_of(const ModelSource& source) {
  const auto directory = tokenizer_directory_of(source);
  if (const auto file = tokenizer_in(directory))
    return is_byte_tokenizer(*file) ? "bytes" : directory.string();
  return source.model.vocabulary == ByteTokenizer::kVocabulary ? "bytes" : "";
}

std::string tokenizer_of_dataset(const std::string& dataset, ShardFiles& files) {
  if (const auto directory = directory_of(dataset); !is_remote(dataset) && tokenizer_in(directory))
    return directory.string();
  const auto manifest = manifest_of(dataset, files);
  return manifest && manifest->tokenizer_hash == ByteTokenizer().about().hash ? "bytes" : "";
}

void fetch_tokenizer(const std::string& dataset, ShardFiles& files, const fs::path& directory) {
  const auto text_of = [&](const char* name) {
    return read_text(files.open((fs::path(dataset) / name).string()), kMostTokenizerBytes);
  };
  std::map<std::string, std::string> texts;
  std::string why;
  for (std::size_t i = 0; i < std::size(kTokenizerFiles); ++i) {
    if (texts.empty() && i == std::size(kTokenizers))  // files that define a tokenizer come first
      return log_own_warning("found no tokenizer with the training data: ", why);
    const char* name = kTokenizerFiles[i];
    try {
      texts[name] = text_of(name);
    } catch (const DataError& error) {
      if (!may_be_missing(error)) throw;
      if (why.empty()) why = error.what();
    }
  }
  make_directories(directory);
  for (const auto& [name, text] : texts)
    write_text(directory / name, text);
}

void require_tokens_of(const ModelConfig& model, const Tokenizer& tokenizer) {
  const auto& about = tokenizer.about();
  if (about.vocabulary > model.vocabulary)
    throw DataError(str("the tokenizer ", about.name, " has ", about.vocabulary,
                        " tokens, but the model's vocabulary is ", model.vocabulary,
                        "; use the tokenizer that the model was trained with"));
}

std::unique_ptr<Tokenizer> open_tokenizer_of(const ModelSource& source, const std::string& what) {
  const auto from = what.empty() ? tokenizer_of(source) : what;
  if (from.empty())
    throw UsageError(str(source.path.string(),
                         ": found no tokenizer with this model; pass its file or directory with "
                         "--tokenizer"));
  auto tokenizer = open_tokenizer(from);
  require_tokens_of(source.model, *tokenizer);
  return tokenizer;
}

bool warn_of_other_tokenizer(const std::vector<std::string>& datasets, const Tokenizer& tokenizer,
                             ShardFiles& files) {
  bool is_other = false;
  for (const auto& dataset : datasets)
    if (const auto manifest = manifest_of(dataset, files);
        manifest && !manifest->tokenizer_hash.empty() &&
        manifest->tokenizer_hash != tokenizer.about().hash) {
      is_other = true;
      log_warning(dataset, " was tokenized with another tokenizer (", manifest->format.name, ", ",
                  manifest->tokenizer_hash, ") than the one in use (", tokenizer.about().name, ", ",
                  tokenizer.about().hash,
                  "): metrics per byte are omitted. Pack its text with the model's tokenizer. If "
                  "both define the same tokens, pass the dataset's tokenizer with --tokenizer");
    }
  return is_other;
}

bool warn_of_other_tokenizer(const Dataset& data, const ModelSource& source) {
  const auto what = tokenizer_of(source);
  const auto& made_with = data.tokenizer_hash();
  if (what.empty() || made_with.empty()) return false;
  const auto own =
      what == "bytes" ? ByteTokenizer().about().hash : hash_of_file(tokenizer_file(what));
  if (own == made_with) return false;
  const auto& list = *std::ranges::find(data.lists(), made_with, &ShardList::tokenizer_hash);
  log_warning("train.init_from: ", source.path.string(), " has another tokenizer (", what, ", ",
              own, ") than the training data in ", list.directory.string(), " (", list.format.name,
              ", ", made_with, "): the weights were trained on other tokens. Unless both define ",
              "the same tokens, pack the data with --tokenizer ", what);
  return true;
}

fs::path tokenizer_directory_of(const ModelSource& source) {
  return source.form == ModelSource::Form::checkpoint ? kept_beside(source.path) : source.path;
}

void keep_tokenizer(const std::string& what, const fs::path& directory,
                    const std::string& init_from) {
  if (what == "bytes") return;
  std::map<std::string, fs::path> kept;  // source of each file, by its name in `directory`
  const auto files = what.empty() ? std::vector<TokenizerFile>() : tokenizer_files(what);
  for (const auto& [path, name] : files)
    kept.emplace(name, path);
  const auto model = directory_of_model(init_from);
  const bool is_its = !model.empty() && (what.empty() || holds_same(files.front().path, model));
  if (is_its)
    for (const auto& name : tokenizer_file_names(model)) {
      auto& file = kept[name];
      if (file.empty() || name == kGenerationConfig) file = model / name;
    }
  for (const auto& [name, file] : kept)
    copy_tokenizer_file(file, directory / name);
  if (!is_its) return;
  const auto generation = kept.find(kGenerationConfig);
  const auto before = generation != kept.end() ? read_text(generation->second, kMostTokenizerBytes)
                                               : std::string(kGenerationConfigOfModel);
  const auto text = with_token_ids_of(model, before);
  if (text == before) return;
  make_directories(directory);
  write_text(directory / kGenerationConfig, text);
}

bool starts_documents(const std::string& what, const Tokenizer& tokenizer) {
  if (what == "bytes") return true;
  const auto document = tokenizer.about().prefix_token;
  if (document < 0) return false;
  const auto file = tokenizer_file(what);
  const auto text = read_text(file, kMostTokenizerBytes);
  if (is_rank_file(text)) return tokenizer.bytes_of(document) == kBeginOfText;  // not Qwen's
  const Json json = Json::parse(text, file.string(), /*depth=*/32);
  if (is_tekken(json)) return true;
  const Json* processor = json.find("post_processor");
  return in_context(
      [&] {
        return processor != nullptr && processor->is_object() &&
               token_in_front(*processor) == tokenizer.bytes_of(document);
      },
      file.string());
}

}  // namespace lockstep

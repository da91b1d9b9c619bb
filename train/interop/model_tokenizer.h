// ModelTokenizer finds the tokenizer of a model. A run keeps a copy in RUN/tokenizer, made when
// training starts, from the directory of the training data or of the initial model. A Hugging Face
// directory holds its own tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/shard_files.h"
#include "data/tokenizer/tokenizer.h"
#include "train/interop/model_source.h"

namespace lockstep {

// Returns an argument for open_tokenizer: a directory with a tokenizer, or "bytes". Empty if the
// tokenizer is unknown.
std::string tokenizer_of(const ModelSource& source);
// Returns the same for a dataset's directory, from its tokenizer files or its dataset.json. For a
// remote dataset it is "bytes" or empty.
std::string tokenizer_of_dataset(const std::string& dataset, ShardFiles& files);

// Copies the tokenizer files of a remote dataset to DIRECTORY/, which is created. If there are
// none, warns and creates no directory.
void fetch_tokenizer(const std::string& dataset, ShardFiles& files,
                     const std::filesystem::path& directory);

// Opens the tokenizer `what` (--tokenizer), or if that is empty the model's own. Throws UsageError
// if there is none, and DataError if it has more tokens than the model.
std::unique_ptr<Tokenizer> open_tokenizer_of(const ModelSource& source, const std::string& what);
void require_tokens_of(const ModelConfig& model, const Tokenizer& tokenizer);

// Warns if the dataset.json of a dataset names another tokenizer, because metrics per byte are
// meaningless then. Returns whether it warned.
bool warn_of_other_tokenizer(const std::vector<std::string>& datasets, const Tokenizer& tokenizer,
                             ShardFiles& files);

// Warns if the initial model of training has another tokenizer than `data`. Returns whether it
// warned.
bool warn_of_other_tokenizer(const Dataset& data, const ModelSource& source);

// Returns the directory of a model's kTokenizerFiles. For a checkpoint it is in the run.
std::filesystem::path tokenizer_directory_of(const ModelSource& source);

// Copies the kTokenizerFiles of `what` to DIRECTORY/, which is created; for "bytes" there are none.
// If the initial model (init_from) has the same tokenizer, or `what` is empty, copies the model's
// files too. If both have a file, the one of `what` is used, except generation_config.json, which
// is the model's. Token ids that it lacks are added from the model's config.json.
void keep_tokenizer(const std::string& what, const std::filesystem::path& directory,
                    const std::string& init_from = "");

// Whether `transformers`, or the package that publishes the tokenizer, puts the document token
// before a text. The post-processor decides for a tokenizer.json. It is true for "bytes", for Llama
// 3's rank file and for a tekken.json, and false for Qwen's rank file.
bool starts_documents(const std::string& what, const Tokenizer& tokenizer);

}  // namespace lockstep

// Which tokenizer is a model's. A run keeps it in RUN/tokenizer, copied when training starts from
// the directory of its training data, or of the model that it starts from; a Hugging Face directory
// is its own.
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

// What open_tokenizer takes: a directory with a tokenizer, or "bytes"; empty where nothing
// says which.
std::string tokenizer_of(const ModelSource& source);
// Of a dataset's directory, by what dataset.json says or lies beside it; of a distant one only
// "bytes".
std::string tokenizer_of_dataset(const std::string& dataset, ShardFiles& files);

// The files of the tokenizer that lies beside a distant dataset to DIRECTORY/, which is made.
// Warns, and makes none, where they cannot be had.
void fetch_tokenizer(const std::string& dataset, ShardFiles& files,
                     const std::filesystem::path& directory);

// The one of `what` (--tokenizer), or where that is empty the model's own. Throws UsageError where
// there is none, DataError where it has more tokens than the model.
std::unique_ptr<Tokenizer> open_tokenizer_of(const ModelSource& source, const std::string& what);
void require_tokens_of(const ModelConfig& model, const Tokenizer& tokenizer);

// Warns where dataset.json of one says that another tokenizer made its tokens: figures by byte are
// meaningless then. Whether one does.
bool warn_of_other_tokenizer(const std::vector<std::string>& datasets, const Tokenizer& tokenizer,
                             ShardFiles& files);

// Warns where a model that training starts from has another tokenizer than DATA. Whether it did.
bool warn_of_other_tokenizer(const Dataset& data, const ModelSource& source);

// Where a model's own kTokenizerFiles lie: of a checkpoint in its run.
std::filesystem::path tokenizer_directory_of(const ModelSource& source);

// The kTokenizerFiles beside `what` to DIRECTORY/, which is made; nothing of bytes. Those of the
// model that training starts from too, if `what` is the same tokenizer or none is known: of files
// that both have its generation_config.json, to which go the token ids of its config.json that it
// lacks.
void keep_tokenizer(const std::string& what, const std::filesystem::path& directory,
                    const std::string& init_from = "");

// Whether `transformers`, or the package that publishes the tokenizer, puts the document token in
// front of a text: by the post-processor of a tokenizer.json; for Llama 3's rank file and a
// tekken.json it does, for Qwen's not. Of bytes: it stands in front of every document.
bool starts_documents(const std::string& what, const Tokenizer& tokenizer);

}  // namespace lockstep

// pack converts text to datasets of tokens in one pass, on all CPU cores. Its memory does not
// depend on the amount of text. The datasets appear under their names only when they are complete.
// After an interruption the same call resumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/input_defects.h"
#include "data/manifest.h"
#include "data/pack/dataset_writer.h"

namespace lockstep {

struct PackOptions {
  std::vector<std::filesystem::path> inputs;  // see text_files
  std::filesystem::path out;                  // must not exist, or be an empty directory
  std::string document_separator;  // between documents of text; empty: one document per file
  double validation_share = 0;     // share of documents, in [0, 1)
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  std::string tokenizer = "bytes";  // see open_tokenizer
  std::string document_token = {};  // its name; empty: as the tokenizer files define it
  // Members of lines of JSON; at most one kind is given. Names with dots select nested members. If
  // none is given, files that are named as JSON lines (see is_called_json_lines) need a member
  // "text".
  std::string field = {};
  std::string prompt_field = {}, response_field = {};
  std::string messages_field = {}, chat_template = {};  // see chat_template()
  bool plain_text = false;  // names of special tokens, JSON and tables are plain text
  MissingBytes missing_bytes = MissingBytes::refuse;
  int threads = 0;  // number of encoding threads; 0: one per CPU core
};

struct PackedDataset {
  std::filesystem::path path;
  Manifest manifest;
  std::int64_t text_bytes = 0;  // text that this call encoded, of all datasets
};

// Each document becomes the document token of the tokenizer and the tokens of its text. Empty
// documents and separators are left out. The mask depends on the kind of document:
// - prompt and response: the document token and the prompt are masked; the response and the end
//   token count.
// - conversation: the text of the assistant and its suffix count.
// With a validation share the datasets are `out`/train and `out`/validation, else `out`. The bytes
// are the same for any number of threads. Throws DataError for input that cannot be read or split,
// UsageError for invalid options.
std::vector<PackedDataset> pack(const PackOptions& options);

}  // namespace lockstep

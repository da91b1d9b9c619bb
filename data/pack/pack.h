// pack: text becomes datasets of tokens, in one pass, by all processors, in memory that does not
// depend on how much text there is. The datasets appear under their names when they are complete,
// or not at all; where pack was stopped, the same call goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/odd_input.h"
#include "data/pack/dataset_writer.h"

namespace lockstep {

struct PackOptions {
  std::vector<std::filesystem::path> inputs;  // see text_files
  std::filesystem::path out;                  // must not exist, or be an empty directory
  std::string document_separator;             // stands between documents of text; empty: one a file
  double validation_share = 0;                // of documents, in [0, 1)
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  std::string tokenizer = "bytes";  // see open_tokenizer
  std::string document_token = {};  // its name; empty: as the tokenizer's files say
  // Members of lines of JSON, one of these; names with dots name members of members. Where none is
  // given, files that are called JSON lines (see is_called_json_lines) have a member "text".
  std::string field = {};
  std::string prompt_field = {}, response_field = {};
  std::string messages_field = {}, chat_template = {};  // see chat_template()
  bool plain_text = false;  // names of special tokens are text, and so are JSON and tables
  MissingBytes missing_bytes = MissingBytes::refuse;
  int threads = 0;  // that encode; 0: one a processor
};

struct PackedDataset {
  std::filesystem::path path;
  Manifest manifest;
  std::int64_t text_bytes = 0;  // of all datasets, that this call made tokens of
};

// Each document becomes the tokenizer's document token and the tokens of its text; one without text
// is left out, as is the separator. Of a prompt and a response the document token and the prompt's
// tokens are masked; the response's and the end token behind count. Of a conversation what the
// assistant says counts, and its suffix. With a validation share, `out`/train and `out`/validation
// are the datasets, else `out` is. The same bytes for any number of threads.
// Throws DataError for input that cannot be read or split, UsageError for options that cannot be
// followed.
std::vector<PackedDataset> pack(const PackOptions& options);

}  // namespace lockstep

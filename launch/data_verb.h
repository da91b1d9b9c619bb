// The verbs of `lockstep data`. Each writes its result to standard output and its progress to
// standard error, returns the exit code, and throws errors. Ctrl-C and SIGTERM end packing and
// converting with exit codes 130 and 75, after a warning that names the files left behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct DataPackOptions {
  std::vector<std::string> inputs;  // files, directories (every file below), patterns; "-": stdin
  std::string out;                  // directory of the dataset; must not exist yet
  std::string tokenizer = "bytes";  // or a tokenizer file, or a directory with one
  std::string document_token;       // name of the token; empty: from the tokenizer files
  std::string validation;           // share of documents held out: "0.5%", "0.005"; empty: none
  std::string document_separator;   // "\n\n", with C escapes; empty: a file is a document
  std::string field;                // member of each JSON line, as in PackOptions
  std::string prompt_field, response_field;
  std::string messages_field, chat_template;
  bool plain_text = false;               // names of special tokens in text are plain text
  std::string missing_bytes = "refuse";  // or "drop", "replace"
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  int threads = 0;  // 0: one per CPU core
};

// Writes the dataset `out`, or with `validation` the datasets `out`/train and `out`/validation.
int data_pack(const DataPackOptions& options);

struct DataInspectOptions {
  std::string dataset;  // same forms as data.train
  std::optional<std::int64_t> at =
      {};                      // token shown with its context; without it, the first tokens
  std::int64_t count = 256;    // tokens shown from `at` on; at most as many before it
  std::string tokenizer = {};  // empty: the tokenizer of the dataset
};
int data_inspect(const DataInspectOptions& options);

struct DataConvertOptions {
  std::vector<std::string> inputs;  // same forms as data.train
  std::string out;                  // directory; must not exist yet
  std::string to;                   // "lockstep", "llmc", "nanogpt", "megatron", "datatrove"
  std::string name = "train";
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  std::string tokenizer;        // tokenizer of the input, if the input does not name it
  std::int64_t vocabulary = 0;  // 0: from the input, or one more than the largest id
};
int data_convert(const DataConvertOptions& options);

// Reads every byte of each dataset; checks hashes, sizes, token range and document ends, and
// lists all damage. Returns 65 if a dataset is damaged, or has nothing to check it against.
int data_verify(const std::vector<std::string>& datasets);

}  // namespace lockstep

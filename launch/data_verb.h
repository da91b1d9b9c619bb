// The verbs of `lockstep data`: each does its work, writes its result to standard output and
// progress to standard error, and returns the exit code. What stops it is thrown; Ctrl-C and
// SIGTERM end packing and converting by 130 and 75, after saying what is left there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct DataPackOptions {
  std::vector<std::string> inputs;  // files, directories (every file below), patterns; "-": stdin
  std::string out;                  // the dataset's directory; must not exist yet
  std::string tokenizer = "bytes";  // or a tokenizer's file, or a directory that holds one
  std::string document_token;       // its name; empty: as the tokenizer's files say
  std::string validation;           // documents held out: "0.5%", or "0.005"; empty: none
  std::string document_separator;   // "\n\n", with C escapes; empty: a file is a document
  std::string field;                // of lines of JSON, as in PackOptions
  std::string prompt_field, response_field;
  std::string messages_field, chat_template;
  bool plain_text = false;               // names of special tokens in text are text
  std::string missing_bytes = "refuse";  // or "drop", "replace"
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  int threads = 0;  // 0: one a processor
};

// Without `validation`, `out` is the dataset; with it, `out`/train and `out`/validation are.
int data_pack(const DataPackOptions& options);

struct DataInspectOptions {
  std::string dataset;  // what data.train in a configuration may be
  std::optional<std::int64_t> at =
      {};                      // show this token and what is around it; else the first ones
  std::int64_t count = 256;    // from there on, and at most so many in front of it
  std::string tokenizer = {};  // empty: the one beside the dataset
};
int data_inspect(const DataInspectOptions& options);

struct DataConvertOptions {
  std::vector<std::string> inputs;  // what data.train in a configuration may be
  std::string out;                  // the directory; must not exist yet
  std::string to;                   // "lockstep", "llmc", "nanogpt", "megatron", "datatrove"
  std::string name = "train";
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  std::string tokenizer;        // of the tokens, where the input does not say it
  std::int64_t vocabulary = 0;  // 0: as the input says, or one more than the largest id
};
int data_convert(const DataConvertOptions& options);

// Reads every byte of each dataset: hashes, sizes, token range, document ends. 65 when one is
// damaged, or nothing says what should be there; all damage is listed.
int data_verify(const std::vector<std::string>& datasets);

}  // namespace lockstep

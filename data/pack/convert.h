// convert writes the tokens and documents of any dataset as shards of another format. It needs one
// pass, or two if the vocabulary is unknown, and memory for the document list of one shard. The
// directory appears under its name only when it is complete.
//
// lockstep, megatron and datatrove list documents; their tokens are copied unchanged. llm.c and
// nanoGPT separate documents only by a token: 50256 of GPT-2, or 128000 of Llama 3 in u32 shards of
// llm.c. It is before each document (llm.c) or after each (nanoGPT). It replaces the separator
// token of the source.
//
// In the other direction, if the tokenizer is known and has another document token, that token is
// put before each document instead.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/pack/shard_output.h"

namespace lockstep {

struct ConvertOptions {
  std::vector<std::string> inputs;  // see Dataset
  std::filesystem::path out;        // must not exist, or be an empty directory
  OutputKind to = OutputKind::lockstep;
  std::string name = "train";  // prefix of file names
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  std::string tokenizer;  // tokenizer of the tokens, see open_tokenizer; "": that of the inputs
  std::int64_t vocabulary = 0;  // ids are below it; 0: that of the inputs
};

struct Converted {
  std::int64_t shards = 0, tokens = 0, documents = 0;
  std::vector<std::string> lost;  // information that the format cannot store, in words
  std::string replaced;           // how the separator token was replaced, in words
};

// Throws DataError naming a token that the format cannot store, UsageError for invalid options.
Converted convert(const ConvertOptions& options);

// "lockstep", "llmc", "nanogpt", "megatron", "datatrove". Throws UsageError for others.
OutputKind output_kind(const std::string& name);

}  // namespace lockstep

// convert: the tokens and documents of any dataset as shards of another format, in one pass (two
// where it is not known how many ids there are), in memory for the list of one shard's documents.
// The directory appears under its name when it is complete, or not at all.
//
// lockstep, megatron and datatrove list documents: tokens are copied as they are. llm.c and nanoGPT
// tell documents apart by a token alone: GPT-2's 50256 (in llm.c's u32 shards Llama 3's 128000),
// in front of each (llm.c) or behind each (nanoGPT). The token that did so in the source is left
// out for it. The way back: where it is said of which tokenizer the tokens are, and that tells
// documents apart by another token, that one is put in front of the document in its place.
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
  std::string name = "train";  // files' names begin with it
  std::int64_t shard_tokens = std::int64_t{1} << 28;
  std::string tokenizer;        // what the tokens are of, see open_tokenizer; "": what inputs say
  std::int64_t vocabulary = 0;  // ids are below it; 0: what inputs say
};

struct Converted {
  std::int64_t shards = 0, tokens = 0, documents = 0;
  std::vector<std::string> lost;  // what the format cannot say, in words
  std::string replaced;           // which token between documents another became, in words
};

// Throws DataError naming the token that the format cannot hold, UsageError for options that cannot
// be followed.
Converted convert(const ConvertOptions& options);

// "lockstep", "llmc", "nanogpt", "megatron", "datatrove". Throws UsageError for others.
OutputKind output_kind(const std::string& name);

}  // namespace lockstep

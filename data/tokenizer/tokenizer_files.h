// The files that make a tokenizer, and those that lie beside it. What is made with a tokenizer, or
// of a model, keeps all that are there: datasets, runs and exports.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_definition.h"

namespace lockstep {

// Names of the files that define a tokenizer. If a directory has several, the first one counts.
inline constexpr const char* kTokenizers[] = {"tokenizer.json", "tekken.json", "qwen.tiktoken",
                                              "tokenizer.model"};

// Those, and the files of Hugging Face's that say how a chat is written and where a generated text
// ends.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                                  "tekken.json",
                                                  "qwen.tiktoken",
                                                  "tokenizer.model",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "chat_template.json",
                                                  "chat_template.jinja",
                                                  "generation_config.json",
                                                  "merges.txt",
                                                  "vocab.json"};

// The file of DIRECTORY that defines a tokenizer; nothing: it has none.
std::optional<std::filesystem::path> tokenizer_in(const std::filesystem::path& directory);

// The file of `what`, which is one or a directory that holds one. Throws DataError where there is
// none, with a way to get one.
std::filesystem::path tokenizer_file(const std::string& what);

// Reads a tokenizer.json, a tekken.json or a rank file, told apart by their contents. Throws
// DataError naming `where`; for a SentencePiece model, with the way to a tokenizer.json.
BpeDefinition parse_tokenizer(std::string_view text, const std::string& where);

// The names of the kTokenizerFiles that DIRECTORY has, and of further chat templates below it
// (additional_chat_templates/NAME.jinja).
std::vector<std::string> tokenizer_file_names(const std::filesystem::path& directory);

// One file of a tokenizer, and the name that a copy of it has.
struct TokenizerFile {
  std::filesystem::path path;
  std::string name;
};
// Those of a tokenizer, the one that defines it first, to be copied beside what is made with it;
// none of `bytes`. Files that a directory would prefer to the first are left out, so that the copy
// defines the same tokenizer.
std::vector<TokenizerFile> tokenizer_files(const std::string& what);
// Copies them to DIRECTORY/, which is made.
void copy_tokenizer_files(const std::vector<TokenizerFile>& files,
                          const std::filesystem::path& directory);
// Copies one to the path `to`, byte for byte; its directory is made.
void copy_tokenizer_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep

// Finds and copies the files of a tokenizer and those that belong to it. Datasets, runs and exports
// keep copies of all of them.
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

// The same, plus the files of Hugging Face that define chat templates and where a generated text
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

// Returns the file of DIRECTORY that defines a tokenizer, or nullopt.
std::optional<std::filesystem::path> tokenizer_in(const std::filesystem::path& directory);

// Returns the file of `what`, which is a tokenizer file or a directory with one. If there is none,
// throws DataError with a way to get one.
std::filesystem::path tokenizer_file(const std::string& what);

// Reads a tokenizer.json, a tekken.json or a rank file, recognized by their contents. Throws
// DataError naming `where`; for a SentencePiece model it explains how to get a tokenizer.json.
BpeDefinition parse_tokenizer(std::string_view text, const std::string& where);

// Returns the names of the kTokenizerFiles in DIRECTORY, and of further chat templates below it
// (additional_chat_templates/NAME.jinja).
std::vector<std::string> tokenizer_file_names(const std::filesystem::path& directory);

// A file of a tokenizer, and the name of its copy.
struct TokenizerFile {
  std::filesystem::path path;
  std::string name;
};
// Returns the files of a tokenizer to be copied beside its datasets, the defining one first; none
// for `bytes`. Leaves out files that a directory would prefer to the first one, so that the copy
// defines the same tokenizer.
std::vector<TokenizerFile> tokenizer_files(const std::string& what);
// Copies them to DIRECTORY, which is created.
void copy_tokenizer_files(const std::vector<TokenizerFile>& files,
                          const std::filesystem::path& directory);
// Copies one to the path `to`, byte for byte; its directory is created.
void copy_tokenizer_file(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace lockstep
